"""Every test runs with shapes checked at run time and with strict promotion of dtypes and ranks."""

import os
from importlib.metadata import version
from pathlib import Path

# Before jax starts: eight host devices, so that sharding is tested on any machine, and less effort
# in compiling, which is most of the suite's time.
flags = [
    os.environ.get("XLA_FLAGS", ""),
    "--xla_force_host_platform_device_count=8",
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
]
if version("jaxlib").startswith("0.10."):
    # Compiles in half the time. An XLA that does not know a flag does not start.
    flags.append("--xla_cpu_use_fusion_emitters=false")
os.environ["XLA_FLAGS"] = " ".join(flags)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")

from jaxtyping import install_import_hook  # noqa: E402

install_import_hook("jaxsens", "beartype.beartype").__enter__()

import jax  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture
def compilations():
    """The functions that XLA compiles during the test."""
    events = []

    def listener(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listener)
    yield events
    jax.monitoring.unregister_event_duration_listener(listener)


@pytest.fixture
def types_unchecked():
    """Functions take what they are given, as they do for users: their own checks are tested."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


#: A process may map 65,530 pieces of memory, and every compiled program is one or more of them:
#: beyond that, XLA ends the process.
_MANY_MAPS = 20_000


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Forgets compiled programs, after a file of tests, before there are too many of them."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and len(maps.read_bytes().splitlines()) > _MANY_MAPS:
        jax.clear_caches()
