"""Every test runs with shapes checked at run time and with strict promotion of dtypes and ranks."""

import collections
import contextlib
import ctypes
import functools
import gc
import importlib.util
import inspect
import os
import typing
from importlib.metadata import version
from pathlib import Path

# Before jax starts: eight host devices, so that sharding is tested on any machine, and less effort
# in compiling, which is most of the suite's time.
flags = [
    "--xla_force_host_platform_device_count=8",
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
]
if version("jaxlib").startswith("0.10."):
    # Compiles in half the time, and a program in one piece instead of 32. An XLA that does not know
    # a flag does not start.
    flags += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
# Once: a worker of xdist inherits what its controller has set, and a kept program is found again by
# the flags that it was compiled with.
given = os.environ.get("XLA_FLAGS", "").split()
os.environ["XLA_FLAGS"] = " ".join([*given, *(flag for flag in flags if flag not in given)])
# Programs that do not carry the stack of each of their operations: a sixth less time in lowering.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
# Errors that keep the frames of JAX: filtering these out of each was half of the time of tests that
# ask for many errors.
os.environ.setdefault("JAX_TRACEBACK_FILTERING", "off")
# Compiled programs are kept for the next run. Writing one takes as long as compiling a small one,
# so the thousands of small ones are not kept.
cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache / "jaxsens" / "tests"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")
# Looking for garbage among what is imported, which all stays, would be a quarter of collecting.
gc.set_threshold(200_000, 20, 100)

import jaxtyping  # noqa: E402
from beartype import BeartypeConf, beartype  # noqa: E402

_jaxtyped = jaxtyping.jaxtyped
_beartype = beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))


def _checked(fn=None, *, typechecker):
    """`jaxtyping.jaxtyped`, without its 10 µs a call for functions that name no array's shape.

    Their arguments and results are checked all the same, by the type checker alone. The code that
    checks a function is made when it is called first: each worker calls some of them.
    """
    if fn is None:
        return functools.partial(_checked, typechecker=typechecker)
    made_by = fn.__init__ if inspect.isclass(fn) else None
    if hasattr(made_by, "__wrapped__") and made_by.__module__.startswith("jaxsens."):
        return fn  # what makes it is a function that has been here already
    if not inspect.isfunction(fn) or inspect.isgeneratorfunction(fn):
        return _jaxtyped(fn, typechecker=typechecker)
    if not fn.__annotations__ or _is_known_closure(fn):
        return fn

    @functools.cache
    def checked():
        if any(map(_has_shape, fn.__annotations__.values())):
            return _jaxtyped(fn, typechecker=typechecker)
        return _beartype(fn)

    @functools.wraps(fn)
    def check(*args, **kwargs):
        return (fn if jaxtyping.config.jaxtyping_disable else checked())(*args, **kwargs)

    return check


#: How often each function within a function was made, by its code.
_closures = collections.Counter()
#: How many of them are checked: making the code that checks one takes a millisecond.
_CHECKED_CLOSURES = 20


def _is_known_closure(fn):
    """Whether it is made within another function, and so many like it have been checked."""
    if "<locals>" not in fn.__qualname__:
        return False
    _closures[fn.__code__] += 1
    return _closures[fn.__code__] > _CHECKED_CLOSURES


def _has_shape(annotation):
    """Whether it may name a shape: a string, which is not looked into, may."""
    if isinstance(annotation, str | typing.ForwardRef | typing.TypeVar):
        return True
    if type(annotation).__module__.startswith("jaxtyping"):
        return True
    parts = annotation if isinstance(annotation, list) else typing.get_args(annotation)
    return any(map(_has_shape, parts))


jaxtyping.jaxtyped = _checked
jaxtyping.install_import_hook("jaxsens", "beartype.beartype").__enter__()

import jax  # noqa: E402
import pytest  # noqa: E402

from jaxsens.core import memory, runtime  # noqa: E402
from tests.helpers import lowering  # noqa: E402
from tests.helpers.processes import Forks  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

lowering.share()

_local_mesh, _global_mesh = runtime.local_mesh, runtime.global_mesh


def _first_device(devices=None):
    """A mesh of one device where a test names none: a third less time than eight of them take."""
    return _local_mesh(jax.local_devices()[:1] if devices is None else devices)


runtime.local_mesh = runtime.global_mesh = _first_device


@pytest.fixture
def all_devices(monkeypatch):
    """What names no devices takes all of them, as it does for users."""
    monkeypatch.setattr(runtime, "local_mesh", _local_mesh)
    monkeypatch.setattr(runtime, "global_mesh", _global_mesh)


#: Files that take longest begin first, so that workers end together (with --no-loadscope-reorder:
#: else those with most tests do).
_LONGEST = (
    "tests/experiments/test_language.py",
    "tests/incremental/test_models.py",
    "tests/processes/test_processes.py",
    "tests/experiments/test_synthetic.py",
    "tests/measurement/test_worst_case.py",
    "tests/experiments/test_sensitive_functions.py",
    "tests/storage/test_storage.py",
)


def _with_room(function, *args, **kwargs):
    return function(*args, **kwargs)


# Python maps its stack in pieces of 16 KiB, and unmaps one as soon as the function returns that
# began it. Tracing crosses such a border all the time: 140,000 mappings in one test of 3 s, and two
# thirds of its time in the kernel. A function that asks for half a MiB gets a piece of one MiB, and
# what it calls has the other half.
_with_room.__code__ = _with_room.__code__.replace(co_stacksize=1 << 16)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    if hasattr(config, "_has_room"):
        return None
    config._has_room = True
    return _with_room(config.hook.pytest_cmdline_main, config=config)


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


def pytest_collection_finish():
    """What is imported by now stays: looking for garbage passes over it."""
    if importlib.util.find_spec("trio"):
        # Selenium brings trio, which tells Hypothesis of a generator when that is imported; were it
        # frozen by then, Hypothesis would not find who refers to it and warn.
        import hypothesis  # noqa: F401
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def forks(tmp_path_factory):
    """Starts programs that would take seconds to import what they need; see `Forks`."""
    opened = Forks(tmp_path_factory.mktemp("forks"))
    yield opened
    opened.close()


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
#: Two workers shall fit into 8 GiB, and take half of what a larger machine has: what is forgotten
#: is compiled anew for the files that follow.
_NUM_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_MANY_BYTES = max(3 << 30, memory.physical_bytes() // (2 * _NUM_WORKERS))


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Forgets compiled programs, after a file of tests, before there are too many of them."""
    yield
    process = Path("/proc/self")
    if not process.exists():
        return
    num_maps = len((process / "maps").read_bytes().splitlines())
    num_bytes = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if num_maps > _MANY_MAPS or num_bytes > _MANY_BYTES:
        jax.clear_caches()
        gc.collect()
        # What is free goes back to the system: else the process stays as large as it was, and each
        # file that follows compiles everything anew.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
