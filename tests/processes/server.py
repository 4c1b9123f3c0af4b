"""Runs the command line in several processes, forks of one process that has imported it all.

Reads one JSON object a line: the arguments, those of single processes, the folder for what they
print, the port where they meet, and how long a heartbeat may fail. Answers with their ids, then
with the status of each as it ends. JAX must not have started before the fork: its threads would not
be there after it.
"""

import json
import os
import sys
from typing import Any


def run(job: dict[str, Any], process: int) -> int:
    """In the child: one of the processes of a job."""
    import jax

    from jaxsens.core import call_log, hosts
    from jaxsens.run import main

    for descriptor, name in ((1, "out"), (2, "err")):
        file = os.path.join(job["folder"], f"{process}.{name}")
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        os.dup2(opened, descriptor)
    port, hosts.HEARTBEAT_SECONDS = job["port"], job["heartbeat"]
    # Compiled programs are shared with later runs of the tests; a process that is killed keeps
    # none, since half of one would stay for ever.
    least_seconds = 0.0 if job["keeps_programs"] else 1e9
    jax.config.update("jax_persistent_cache_min_compile_time_secs", least_seconds)
    call_log.SECONDS_BETWEEN_SAVES = 0.0
    arguments = [*job["arguments"], *job["own"].get(str(process), [])]
    if job["slurm"]:
        # As srun has it; the port follows from the number of the job.
        os.environ |= {
            "SLURM_JOB_ID": str(port),
            "SLURM_STEP_NODELIST": "127.0.0.1",
            "SLURM_NTASKS": str(job["num"]),
            "SLURM_PROCID": str(process),
            "SLURM_LOCALID": str(process),
            "JAX_COORDINATOR_PORT": str(port),
        }
    elif job["num"] > 1:
        arguments += ["--coordinator", f"127.0.0.1:{port}", "--num-processes", str(job["num"])]
        arguments += ["--process-id", str(process)]
    status = main(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    return status


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
        job, children = json.loads(line), {}
        for process in range(job["num"]):
            if (child := os.fork()) == 0:
                status = 99
                try:
                    status = run(job, process)
                finally:
                    os._exit(status)
            children[child] = process
        print(json.dumps([*children]), flush=True)
        for _ in range(job["num"]):
            child, status = os.wait()
            print(children[child], os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
