"""The command line in several processes: they start together and end together.

Process 0 alone speaks to the user. A process that ends with an error, or is interrupted, takes the
others with it: one message, one status.
"""

import warnings
from collections.abc import Sequence

import jax

from jaxsens.cli import flags, signals, streams
from jaxsens.core import hosts, peers

_INTERRUPTED = "interrupted; the same command resumes"


def start(arguments: Sequence[str]) -> bool:
    """Joins the other processes, if the flags or the surroundings say that there are some.

    Args:
      arguments: the words of the command line.

    Returns:
      Whether there are several processes, which `end` must then end.

    Raises:
      ValueError: a flag about processes is bad, or they cannot start together.
      PeersMissingError: some did not come.
    """
    given = flags.processes(arguments)
    if given is None or not hosts.initialize(*given):
        return False
    peers.watch(streams.NativeStderr())
    signals.BEFORE_LEAVING.append(lambda: peers.leave(signals.EXIT_INTERRUPTED, _INTERRUPTED))
    if not hosts.is_first():
        warnings.showwarning = lambda *_, **__: None
    return True


def end(status: int, message: str | None) -> int:
    """Ends one of several processes: together with the others, all with the same status.

    Args:
      status: of this process.
      message: why, if it is not 0; it is printed once.

    Returns:
      The status, when all have come to their end.
    """
    if status:
        peers.leave(status, message or "")
    try:
        hosts.shutdown()
    except jax.errors.JaxRuntimeError:
        # What was to be done is done; that all processes end well is not.
        peers.leave(peers.EXIT_LOST, "another process was lost at the end; the folder is complete")
    return status
