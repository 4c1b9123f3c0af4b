"""Several processes of one job: how they find each other, and what the first one decides.

Every process makes the same calls in the same order. Process 0 alone reads and writes files of the
run; `from_first` gives what it found, or why it failed, to all the others, through the key-value
store of `jax.distributed`. One process calls the function, and nothing else happens.

Assumption: processes differ in nothing but their number. A branch on the time or on a local file
must be decided by `from_first` too, or processes wait for each other for ever.
"""

import base64
import builtins
import contextlib
import importlib
import json
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax._src import distributed
from jax._src.clusters import ClusterEnv
from jax.experimental import multihost_utils

#: After so long without a sign of life a process counts as lost.
HEARTBEAT_SECONDS = 30
#: How long processes wait for each other to start.
START_SECONDS = 300
#: How long those that have ended wait for the others to end.
_END_SECONDS = 300
#: The most bytes of one entry of the key-value store, far below what one message may have.
_PIECE = 1 << 20
#: After so many calls their entries are deleted.
_CALLS_KEPT = 32
_FOR_EVER = 2**31 - 1

_local = threading.local()
_num_calls = 0


class HostsError(ValueError):
    """Processes do not fit together, or cannot start; the message is one line."""


class PeersMissingError(RuntimeError):
    """Not all processes came; the message is one line."""


def num_processes() -> int:
    """How many processes this job has; asks no device."""
    return distributed.global_state.num_processes if is_initialized() else 1


def process_id() -> int:
    """The number of this process; asks no device."""
    return distributed.global_state.process_id if is_initialized() else 0


def is_initialized() -> bool:
    """Whether this process belongs to a job of `jax.distributed`."""
    return distributed.global_state.client is not None


def is_first() -> bool:
    """Whether this is the process that reads and writes files; the only one is."""
    return process_id() == 0


def client() -> Any:
    """The key-value store that the processes share."""
    return distributed.global_state.client


def initialize(
    coordinator: str | None = None, num: int | None = None, process: int | None = None
) -> bool:
    """Joins the other processes; must come before any other use of a device.

    JAX's own preemption service stays off: it would take SIGTERM for itself.

    Args:
      coordinator: HOST:PORT of process 0; None if the cluster says.
      num: the number of processes, likewise.
      process: the number of this one, likewise.

    Returns:
      Whether there are several processes. Without any argument, on a machine that is no part of a
      cluster, there is one, and nothing is done.

    Raises:
      HostsError: the arguments do not fit each other, or the job cannot start.
      PeersMissingError: not all processes came in time.
    """
    if is_initialized():
        return num_processes() > 1
    if coordinator is None and num is None and process is None:
        num = _cluster_size()
        if num is None:
            return False
    if num == 1:
        return False
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            coordinator,
            num,
            process,
            initialization_timeout=START_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=_END_SECONDS,
        )
    except ValueError as error:
        raise HostsError(
            f"processes cannot find each other ({_one_line(error)}); outside SLURM, TPU pods and "
            "Kubernetes jobs give --coordinator, --num-processes and --process-id"
        ) from error
    except jax.errors.JaxRuntimeError as error:
        if "DEADLINE_EXCEEDED" in str(error) or "UNAVAILABLE" in str(error):
            raise PeersMissingError(
                f"not all processes came within {START_SECONDS} s; the same command tries again"
            ) from error
        raise HostsError(f"processes cannot start together: {_one_line(error):.300}") from error
    return num_processes() > 1


def _cluster_size() -> int | None:
    """The number of processes that JAX finds in the surroundings; None if they are no cluster."""
    for kind in ClusterEnv._cluster_types:
        if kind.opt_in_only_method or not _is_present(kind):
            continue
        try:
            return kind.get_process_count()
        except Exception as error:
            raise HostsError(
                f"{kind.__name__} does not say how many processes there are "
                f"({_one_line(error):.200}); give --coordinator, --num-processes and --process-id, "
                "or --distributed off"
            ) from error
    return None


def _is_present(kind: type[ClusterEnv]) -> bool:
    # A pod that is no part of an indexed job runs alone; asking its cluster could take minutes.
    if kind.__name__ == "K8sCluster" and "JOB_COMPLETION_INDEX" not in os.environ:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind.is_env_present()


def shutdown() -> None:
    """Leaves the job together with all others; waits for those that have not come so far."""
    jax.distributed.shutdown()


def from_first(function: Callable[[], Any]) -> Any:
    """What the function gives in process 0, in every process; it is called there alone.

    Args:
      function: gives None, bytes, or what JSON can hold; tuples come back as lists elsewhere.

    Returns:
      Its result.

    Raises:
      Exception: what the function raised in process 0; elsewhere an error of the same class, or of
        the nearest base class that can be made of a message alone, with the same message.
    """
    if num_processes() == 1 or getattr(_local, "inside", False):
        return function()
    # The name is compared: processes that have gone different ways are told so.
    name = getattr(function, "__qualname__", type(function).__name__)
    number = _next_number()
    return _give(number, name, function) if is_first() else _take(number, name)


def agreed(value: Any) -> Any:
    """The value of process 0 in every process, for what may differ, such as the time."""
    return from_first(lambda: value)


def require_same(value: Any, problem: Callable[[Any, Any], str]) -> None:
    """Raises HostsError in a process whose value differs from that of process 0.

    Args:
      value: what JSON can hold.
      problem: from the value of process 0 and the one here to the message, one line.
    """
    mine = json.loads(json.dumps(value))
    theirs = from_first(lambda: mine)
    if theirs != mine:
        raise HostsError(f"process {process_id()}: {problem(theirs, mine)}")


def arrays_from_first(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Arrays of process 0 in every process, to the bit, over the devices' own network.

    Args:
      arrays: in process 0 the arrays; elsewhere any of the same shapes and dtypes.
    """
    if num_processes() == 1 or not arrays:
        return arrays
    raw = [np.frombuffer(np.ascontiguousarray(each).tobytes(), np.uint8) for each in arrays]
    sent = multihost_utils.broadcast_one_to_all(np.concatenate(raw), is_first())
    pieces = np.split(np.asarray(sent), np.cumsum([len(each) for each in raw])[:-1])
    return [
        np.frombuffer(piece.tobytes(), like.dtype).reshape(like.shape)
        for piece, like in zip(pieces, arrays, strict=True)
    ]


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """What process 0 does for all the others, it does alone."""
    _local.inside = True
    try:
        yield
    finally:
        _local.inside = False


def _next_number() -> int:
    """Counts the calls, the same in all processes, and deletes what all of them have read."""
    global _num_calls
    number, _num_calls = _num_calls, _num_calls + 1
    if number and number % _CALLS_KEPT == 0:
        _forget(number)
    return number


def _forget(number: int) -> None:
    client().wait_at_barrier(f"jaxsens/read/{number}", _FOR_EVER)
    if is_first():
        for old in range(number - _CALLS_KEPT, number):
            client().key_value_delete(_key(old))


def _key(number: int) -> str:
    return f"jaxsens/first/{number}/"


def _give(number: int, name: str, function: Callable[[], Any]) -> Any:
    try:
        with _alone():
            value = function()
        said, raised = {"value": _encoded(value)}, None
    except Exception as error:
        said = {"error": str(error), "classes": [*map(_class_name, type(error).__mro__)]}
        raised = error
    content = json.dumps({"name": name} | said).encode()
    pieces = [content[at : at + _PIECE] for at in range(0, len(content), _PIECE)]
    for at, piece in enumerate(pieces[1:], start=1):
        client().key_value_set_bytes(f"{_key(number)}{at}", piece)
    # Last, because it says that all are there, and how many.
    client().key_value_set_bytes(f"{_key(number)}0", b"%d:" % len(pieces) + pieces[0])
    if raised is not None:
        raise raised
    return value


def _take(number: int, name: str) -> Any:
    head = client().blocking_key_value_get_bytes(f"{_key(number)}0", _FOR_EVER)
    count, _, content = head.partition(b":")
    for at in range(1, int(count)):
        content += client().blocking_key_value_get_bytes(f"{_key(number)}{at}", _FOR_EVER)
    said = json.loads(content)
    if said["name"] != name:
        raise RuntimeError(f"processes went different ways: {said['name']} there, {name} here")
    if "error" in said:
        raise _error(said["classes"], said["error"])
    return _decoded(said["value"])


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    return {"json": value}


def _decoded(sent: dict[str, Any]) -> Any:
    return base64.b64decode(sent["bytes"]) if "bytes" in sent else sent["json"]


def _class_name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _error(classes: list[str], message: str) -> Exception:
    """An error of the first of the classes that is ours or Python's and takes a message alone."""
    for each in classes:
        module, _, name = each.partition(":")
        try:
            if module == "builtins":
                return getattr(builtins, name)(message)
            if module.partition(".")[0] == "jaxsens":
                return getattr(importlib.import_module(module), name)(message)
        except (TypeError, AttributeError, ImportError):
            continue
    return RuntimeError(message)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
