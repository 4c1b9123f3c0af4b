"""What a process of the command line does before JAX is imported, which takes seconds.

Importing this module does it, if the process was started as `jaxsens` or by `python -m` as one of
the modules below: `python -m` imports the package before the module, so nothing of jaxsens comes
earlier than this.
"""

import sys
from pathlib import Path

from jaxsens.cli import signals, streams

_MODULES = ("jaxsens.run", "jaxsens.sweep", "jaxsens.measure")


def is_command_line() -> bool:
    """Whether this process runs our command line, not a program that uses the library."""
    program = (getattr(sys, "argv", None) or [""])[0]
    # Python calls the program so while it looks for the module.
    if program == "-m":
        return any(word.removeprefix("-m") in _MODULES for word in sys.orig_argv)
    return Path(program).name == "jaxsens"


if is_command_line():
    streams.secure()
    signals.watch()
    signals.end_with_parent()
