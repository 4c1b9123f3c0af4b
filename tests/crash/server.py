"""Runs the command line again and again, each time in a fork of a process that has imported it all.

Reads one JSON object a line: the arguments, the folder, where stderr goes, and which of the
folder's changes is to fail how (see faults.c); answers with the exit status and the number of
changes, -1 for a process that died. JAX must not have started before the fork: its threads would
not be there after it.
"""

import ctypes
import json
import os
import sys
from typing import Any


def run(job: dict[str, Any], faults: Any, main: Any, answer: int) -> None:
    """In the child: one run, with a fault."""
    import jax

    for descriptor, file in ((1, os.devnull), (2, job["stderr"])):
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(opened, descriptor)
    # Compiled programs are shared with later runs of the tests; a process that dies keeps none,
    # since half of one would stay for ever.
    least_seconds = 0.0 if job["at"] < 0 else 1e9
    jax.config.update("jax_persistent_cache_min_compile_time_secs", least_seconds)
    faults.faults_begin(job["folder"].encode(), job["at"], job["how"], job["errno"])
    status = main(job["arguments"])
    os.write(answer, str(faults.faults_count()).encode())
    os._exit(status)


def serve() -> None:
    """Answers until stdin ends."""
    import jax._src.xla_bridge as bridge
    import tiny

    from jaxsens.run import load_experiment, main

    vision = load_experiment("vision")
    vision.load, vision.run = tiny.load, tiny.run
    if bridge.backends_are_initialized():
        raise RuntimeError("JAX has started: forks would hang")
    faults = ctypes.CDLL(None)
    faults.faults_begin.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
    faults.faults_count.restype = ctypes.c_long
    for line in sys.stdin:
        read_end, write_end = os.pipe()
        if (child := os.fork()) == 0:
            try:
                run(json.loads(line), faults, main, write_end)
            finally:
                os._exit(99)
        os.close(write_end)
        _, status = os.waitpid(child, 0)
        count = os.read(read_end, 100).decode() or "-1"
        os.close(read_end)
        print(os.waitstatus_to_exitcode(status), count, flush=True)


if __name__ == "__main__":
    serve()
