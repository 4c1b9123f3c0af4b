"""Forks that run Python programs; see `Forks`, which talks to this process.

Reads one JSON object a line. A job (command, folder, where stderr goes, environment, options of
JAX) is answered by the id of its process, {"poll": id} by the status, null while it runs. JAX must
not have started before a fork: its threads would not be there after it.
"""

import json
import os
import runpy
import sys
import traceback
from typing import Any

import jax
import jax._src.xla_bridge as bridge
import orbax.checkpoint  # noqa: F401  what runs import when they begin

import jaxsens.figures
import jaxsens.models  # noqa: F401
from jaxsens.run import load_experiment


def run(job: dict[str, Any]) -> int:
    """In the child: the program, until it ends."""
    for descriptor, file in ((0, os.devnull), (1, os.devnull), (2, job["said"])):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644), descriptor)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    for name, value in job["config"].items():
        jax.config.update(name, value)
    is_module = job["command"][0] == "-m"
    sys.argv = job["command"][int(is_module) :]
    try:
        if is_module:
            sys.modules.pop(sys.argv[0], None)  # else runpy warns that it is there already
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(sys.argv[0])
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def answer(question: dict[str, Any]) -> int | None:
    """What the question asks for; in the child, it does not return."""
    if "poll" in question:
        pid, status = os.waitpid(question["poll"], os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None
    if (child := os.fork()) == 0:
        status = 99
        try:
            status = run(question)
            sys.stderr.flush()
        finally:
            os._exit(status)
    return child


if __name__ == "__main__":
    load_experiment("vision")
    if bridge.backends_are_initialized():
        raise RuntimeError("JAX has started: forks would hang")
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
