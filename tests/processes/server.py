"""Runs the command line in several processes, forks of one process that has imported it all.

Reads one JSON object a line: the arguments, those of single processes, the folder for what they
print, and how long a heartbeat may fail. Answers with their ids, then with the status of each as it
ends. JAX must not have started before the fork: its threads would not be there after it.
"""

import json
import os
import socket
import sys
from typing import Any


def run(job: dict[str, Any], process: int, port: int) -> int:
    """In the child: one of the processes of a job."""
    from jaxsens.core import call_log, hosts
    from jaxsens.run import main

    for descriptor, name in ((1, "out"), (2, "err")):
        file = os.path.join(job["folder"], f"{process}.{name}")
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        os.dup2(opened, descriptor)
    hosts.HEARTBEAT_SECONDS = job["heartbeat"]
    call_log.SECONDS_BETWEEN_SAVES = 0.0
    arguments = [*job["arguments"], *job["own"].get(str(process), [])]
    if job["num"] > 1:
        arguments += ["--coordinator", f"127.0.0.1:{port}", "--num-processes", str(job["num"])]
        arguments += ["--process-id", str(process)]
    status = main(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def serve() -> None:
    """Answers until stdin ends."""
    import jax._src.xla_bridge as bridge
    import small

    from jaxsens.run import load_experiment

    vision = load_experiment("vision")
    vision.load, vision.run = small.load, small.run
    if bridge.backends_are_initialized():
        raise RuntimeError("JAX has started: forks would hang")
    for line in sys.stdin:
        job, port, children = json.loads(line), free_port(), {}
        for process in range(job["num"]):
            if (child := os.fork()) == 0:
                status = 99
                try:
                    status = run(job, process, port)
                finally:
                    os._exit(status)
            children[child] = process
        print(json.dumps([*children]), flush=True)
        for _ in range(job["num"]):
            child, status = os.wait()
            print(children[child], os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
