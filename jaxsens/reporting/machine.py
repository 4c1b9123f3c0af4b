"""What numbers are made with: versions, devices, machine, commit."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax

from jaxsens.core import onednn

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")


def environment() -> dict[str, Any]:
    """What the numbers were made with: versions, device, machine and, in a checkout, the commit.

    Returns:
      python, the versions of jax, jaxlib, flax, optax, numpy and jaxsens, backend, device,
      num_devices, num_hosts, platform, cpu, num_cpus; `onednn`, its version, only if it computes
      convolutions; `commit` only if jaxsens is a git checkout, with a "+" when tracked files were
      changed.

    Example:
      >>> made_with = environment()
      >>> made_with["jax"] == jax.__version__, made_with["num_cpus"] == os.cpu_count()
      (True, True)
    """
    from jaxsens import __version__  # here, because jaxsens/__init__.py may import this module

    commit = _commit(Path(__file__).resolve().parents[2])
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
        "jaxsens": __version__,
        "backend": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "num_devices": jax.device_count(),
        "num_hosts": jax.process_count(),
        "platform": platform.platform(),
        "cpu": cpu_model(),
        "num_cpus": os.cpu_count(),
        **({"onednn": version} if (version := onednn.version()) else {}),
        **({"commit": commit} if commit else {}),
    }


def cpu_model() -> str:
    """The processor's name, as the system gives it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit(root: Path) -> str | None:
    """The commit of the checkout whose top folder is `root`; None anywhere else."""

    def git(*arguments: str) -> str:
        # Without optional locks, asking for the status leaves the index of the user alone.
        command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.strip()

    try:
        # site-packages may lie inside somebody else's checkout, whose commit says nothing.
        if Path(git("rev-parse", "--show-toplevel")).resolve() != root:
            return None
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None
