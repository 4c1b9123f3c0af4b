"""A real SLURM of one node in a folder: Debian's packages, unpacked, its servers on 127.0.0.1.

Nothing is installed: `apt-get download` and `dpkg -x`. There are two partitions: jobs of `high`
preempt those of `low`, which get 60 s of grace and are requeued.
"""

import contextlib
import getpass
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from tests.helpers.processes import free_port

PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins"),
    *("munge", "libmunge2", "libhwloc15", "liblua5.1-0"),
)
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}

CONFIG = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=30
MinJobAge=3600
NodeName=localhost NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=low Nodes=localhost Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=60
PartitionName=high Nodes=localhost PriorityTier=10 PreemptMode=OFF
"""


class UnavailableError(Exception):
    """SLURM cannot be had here; the message says why."""


def unpack(folder: Path) -> Path:
    """Downloads and unpacks the packages; the root that they would be installed under."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise UnavailableError("no apt-get and dpkg: SLURM comes from Debian's packages")
    packages, root = folder / "packages", folder / "root"
    packages.mkdir()
    download = ["apt-get", "download", "-qq", *PACKAGES]
    done = _run(download, packages)
    if done.returncode:
        _run(["apt-get", "update", "-qq"], packages)
        done = _run(download, packages)
    if done.returncode:
        raise UnavailableError(f"apt-get download: {done.stderr.strip()[-200:]}")
    for package in packages.glob("*.deb"):
        _run(["dpkg", "-x", str(package), str(root)], packages).check_returncode()
    return root


def _run(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


class Cluster:
    """A running SLURM; use it as a context."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._servers = folder, contextlib.ExitStack()
        root = unpack(folder)
        libraries = root / "usr/lib/x86_64-linux-gnu"
        self._programs = root / "usr"
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{root / 'usr/bin'}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": f"{libraries}:{libraries / 'slurm-wlm'}",
        }
        text = CONFIG.format(
            folder=folder,
            plugins=libraries / "slurm-wlm",
            user=getpass.getuser(),
            controller_port=free_port(),
            node_port=free_port(),
        )
        (folder / "slurm.conf").write_text(text)
        (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")

    def __enter__(self) -> "Cluster":
        folder = self._folder
        key = folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        with contextlib.ExitStack() as stack:
            files = {"socket": "munge.sock", "pid-file": "munge.pid", "log-file": "munge.log"}
            files |= {"seed-file": "munge.seed", "key-file": "munge.key"}
            options = [f"--{option}={folder / name}" for option, name in files.items()]
            self._serve(stack, "munged", "--foreground", "--force", *options)
            self._wait(lambda: (folder / "munge.sock").exists(), "munged")
            self._serve(stack, "slurmctld-wlm", "-D", "-i")
            stepd = self._programs / "sbin/slurmstepd-wlm"
            self._serve(stack, "slurmd-wlm", "-D", "-d", str(stepd))
            self._wait(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%T"), "the node")
            self._servers = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(subprocess.SubprocessError):
            self.ask("scancel", "--full", "--state=RUNNING", f"--user={getpass.getuser()}")
        self._servers.close()

    def submit(self, *arguments: str, folder: Path, **variables: str) -> str:
        """Submits a batch job from a folder; its number."""
        environment = {**self.environment, **variables}
        command = ["sbatch", "--parsable", *arguments]
        return self.ask(*command, folder=folder, environment=environment).strip()

    def jobs(self, number: str) -> list[dict[str, str]]:
        """What SLURM says of a job, or of each task of an array."""
        text = self.ask("scontrol", "show", "job", "--oneliner", number)
        return [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in text.splitlines() if line]

    def wait_for_end(self, number: str, seconds: float = 1200) -> list[dict[str, str]]:
        """What SLURM says when all tasks of a job have ended; none waits before it starts again."""

        def ended() -> bool:
            found = self.jobs(number)
            for job in found:
                # SLURM lets a requeued job wait for two minutes.
                if job["JobState"] == "PENDING" and job["Reason"] == "BeginTime":
                    self.ask("scontrol", "update", f"JobId={job['JobId']}", "StartTime=now")
            return {job["JobState"] for job in found} <= ENDED

        self._wait(ended, f"job {number}", seconds)
        return self.jobs(number)

    def ask(
        self, *command: str, folder: Path | None = None, environment: dict[str, str] | None = None
    ) -> str:
        """What a command of SLURM prints; it is one that ends at once."""
        program = str(self._programs / "bin" / command[0])
        done = subprocess.run(
            [program, *command[1:]],
            cwd=folder or self._folder,
            env=environment or self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode and command[0] != "sinfo":
            raise AssertionError(f"{command}: {done.stderr}")
        return done.stdout

    def _serve(self, stack: contextlib.ExitStack, program: str, *arguments: str) -> None:
        log = stack.enter_context((self._folder / f"{program}.out").open("wb"))
        command = [str(self._programs / "sbin" / program), *arguments]
        process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        stack.callback(_stop, process)

    def _wait(self, condition, what: str, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                logs = [
                    f"{file}:\n{file.read_text()[-2000:]}" for file in self._folder.glob("*.log")
                ]
                raise AssertionError(f"{what} did not come\n" + "\n".join(logs))
            time.sleep(0.5)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
