"""Devices, hosts and precision: where a measurement runs, never what it measures.

Examples of a measurement are split over processes (hosts) first and over a process's own devices
second. Draws are keyed by the example's global index, so neither split changes a number. Training
and accuracy split a batch over all devices of all processes, as one program.

Assumption: every process makes the same calls with the same arguments, as `jax.distributed` asks.
"""

import contextlib
import glob
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import jaxlib.xla_client
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxsens.core.memory import physical_bytes
from jaxsens.core.scalars import as_list, one_line

#: Matrix products of every measurement run in full float32, unless it is told otherwise.
PRECISION: "Precision" = "highest"
#: How a platform multiplies matrices of float32; see `product_rounding`.
PRECISIONS = ("highest", "high", "default")
Precision = Literal["highest", "high", "default"]

#: The relative rounding error of products, by platform and precision, where it is not float32's:
#: a GPU rounds operands to TensorFloat-32 (10 bits of mantissa); a TPU to bfloat16 (7 bits), or to
#: the sum of two of them ("high", three products, 15 bits). A CPU always takes float32.
_PRODUCT_ROUNDING = {
    ("gpu", "high"): 2.0**-10,
    ("gpu", "default"): 2.0**-10,
    ("tpu", "high"): 2.0**-15,
    ("tpu", "default"): 2.0**-7,
}

#: The most calls that run at the same time: each holds memory.
MAX_CONCURRENT_CALLS = 8

_LEAST_SECONDS = "jax_persistent_cache_min_compile_time_secs"

AXIS = "examples"
SPLIT = PartitionSpec(AXIS)
REPLICATED = PartitionSpec()


def keep_compiled_programs(folder: str | os.PathLike[str] | None = None) -> None:
    """Keeps programs that took long to compile in a folder, for later processes.

    Compiling is most of a short measurement: call this once, before the first, and the next process
    that measures the same model in the same way starts without it. The command line does so by
    itself.

        jaxsens.keep_compiled_programs()
        est = jaxsens.sensitivity(...)

    What is kept is JAX's own cache of compiled programs, those of other libraries included; which
    are worth it, JAX decides by `jax_persistent_cache_min_compile_time_secs`: a fifth of a second,
    unless it was told another time than its own default of 1 s. A program that cannot be read is
    compiled and stored again.

    Args:
      folder: where; default what JAX was told by `JAX_COMPILATION_CACHE_DIR`, else
        `jaxsens/programs` in the user's cache folder. A user without a home folder has none.
    """
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", os.fspath(folder))
    elif getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        try:
            cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        except RuntimeError:
            return
        jax.config.update("jax_compilation_cache_dir", str(cache / "jaxsens" / "programs"))
    if getattr(jax.config, _LEAST_SECONDS) == 1:
        jax.config.update(_LEAST_SECONDS, 0.2)
    shown = warnings.showwarning
    if getattr(shown, "forgets_damaged_programs", False):
        return

    def show(message: Warning | str, *where: Any, **more: Any) -> None:
        if not _forget_damaged_program(str(message)):
            shown(message, *where, **more)

    show.forgets_damaged_programs = True  # type: ignore[attr-defined]
    warnings.showwarning = show


def _forget_damaged_program(warning: str) -> bool:
    """Deletes the programs of a function if JAX warns that one of them cannot be read.

    JAX then compiles anew, but would leave the damaged file where it is, and warn for ever.
    """
    found = re.match(r"Error reading persistent compilation cache entry for '(.+?)'", warning)
    if not found:
        return False
    folder = Path(str(jax.config.jax_compilation_cache_dir))  # type: ignore[attr-defined]
    for file in folder.glob(f"{glob.escape(found[1])}-*"):
        with contextlib.suppress(OSError):
            file.unlink()
    return True


def local_mesh(devices: Any = None) -> Mesh:
    """The given devices, by default all of this process, as a mesh with the one axis "examples"."""
    if devices is None:
        return Mesh(np.array(jax.local_devices()), (AXIS,))
    chosen = as_list(devices)
    if chosen == []:
        raise ValueError("devices must name at least one; got none: leave it out to use all")
    if (
        not chosen
        or not all(isinstance(device, jax.Device) for device in chosen)
        or {(device.process_index, device.platform) for device in chosen}
        != {(jax.process_index(), chosen[0].platform)}
    ):
        raise ValueError(
            "devices must be a list of this process's JAX devices of one kind, such as "
            f"jax.local_devices()[:1]; got {one_line(devices)}"
        )
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"devices must be given once each; got {one_line(devices)}")
    return Mesh(np.array(chosen), (AXIS,))


def global_mesh() -> Mesh:
    """All devices of all processes, as a mesh with the one axis "examples"."""
    return Mesh(np.array(jax.devices()), (AXIS,))


def device_bytes(mesh: Mesh) -> int:
    """The memory of one device of this process; devices of a CPU share that of the machine."""
    mine = [device for device in mesh.devices.flat if device.process_index == jax.process_index()]
    return _reported_bytes(mine) or physical_bytes() // max(1, len(mine))


def accelerator_bytes(mesh: Mesh) -> int | None:
    """The memory of one device that is no CPU, as its allocator says; None if it does not."""
    return _reported_bytes(list(mesh.local_devices))


def _reported_bytes(devices: list[Any]) -> int | None:
    stats = (devices[0].memory_stats() if devices else None) or {}
    return int(stats["bytes_limit"]) if "bytes_limit" in stats else None


def num_concurrent_calls(mesh: Mesh) -> int:
    """How many calls should run at the same time, so that they keep the mesh busy.

    On a CPU that is the number of cores per device, since most operations of a measurement are too
    small for XLA to spread them over cores. Elsewhere it is 1.
    """
    if platform(mesh) != "cpu":
        return 1
    return max(1, min(MAX_CONCURRENT_CALLS, num_cores() // mesh.size))


def num_cores() -> int:
    """The cores that this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def concurrent_call(number: int, num_concurrent: int) -> contextlib.AbstractContextManager:
    """A context in which a call of a compiled function may run beside earlier calls.

    XLA's CPU client runs the calls of one thread one after the other unless it is told which queue
    (it says: execution stream) a call belongs to. A jaxlib that cannot be told is slower and gives
    the same numbers.

    Args:
      number: counts the calls.
      num_concurrent: how many may run at the same time.
    """
    tell = getattr(jaxlib.xla_client, "execution_stream_id", None)
    if num_concurrent == 1 or tell is None:
        return contextlib.nullcontext()
    return tell(number % num_concurrent)


def over_devices(function: Callable, mesh: Mesh, in_specs: tuple) -> Callable:
    """Runs a function on every device of the mesh, each with its own share of the examples.

    Args:
      function: takes arrays of one device's examples and gives such arrays.
      mesh: the devices.
      in_specs: for each argument `SPLIT`, cut along its first axis, or `REPLICATED`.

    Returns:
      A function of whole arrays, whose results are split like its arguments.
    """
    if mesh.size == 1:
        return function
    return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=SPLIT, check_vma=False)


def place(tree: Any, mesh: Mesh, partition: PartitionSpec) -> Any:
    """Puts arrays on the mesh.

    Args:
      tree: a pytree of arrays.
      mesh: the devices.
      partition: `SPLIT` cuts every array along its first axis, `REPLICATED` gives every device all
        of it.
    """

    def put(leaf):
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            # A copy that all hosts share: take this host's. A leaf split over hosts has none.
            if not leaf.is_fully_replicated:
                raise ValueError(
                    f"parameters of shape {leaf.shape} are split over hosts; replicate them first "
                    "(jax.device_put with an empty PartitionSpec)"
                )
            leaf = leaf.addressable_data(0)
        return jax.device_put(leaf, NamedSharding(mesh, partition))

    return jax.tree.map(put, tree)


def host_copy(tree: Any) -> Any:
    """The arrays of a tree as NumPy arrays, also those that are split over hosts.

    Every process must call this.
    """

    def copy(leaf):
        if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
            return np.asarray(leaf)
        if leaf.is_fully_replicated:
            return np.asarray(leaf.addressable_data(0))
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))

    return jax.tree.map(copy, tree)


def place_like(tree: Any, like: Any) -> Any:
    """Puts NumPy arrays where the arrays of another tree are, which may be on several hosts."""

    def put(leaf, like_leaf):
        if not isinstance(like_leaf, jax.Array):
            return leaf
        if like_leaf.is_fully_addressable:
            return jax.device_put(leaf, like_leaf.sharding)
        return jax.make_array_from_callback(leaf.shape, like_leaf.sharding, lambda at: leaf[at])

    return jax.tree.map(put, tree, like)


def replicated(tree: Any, mesh: Mesh) -> Any:
    """Gives every device of a mesh, which may be those of several processes, all of each array.

    Args:
      tree: arrays and random keys, the same on every process.
      mesh: the devices; if it is one, arrays are left where they are.
    """
    if mesh.size == 1:
        return tree
    sharding = NamedSharding(mesh, REPLICATED)

    def put(leaf):
        leaf = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            data, impl = jax.random.key_data(leaf), jax.random.key_impl(leaf)
            return jax.random.wrap_key_data(put(data), impl=impl)
        if isinstance(leaf, jax.Array) and leaf.sharding.is_equivalent_to(sharding, leaf.ndim):
            return leaf
        if jax.process_count() == 1:
            return jax.device_put(leaf, sharding)
        # Not device_put, which would first compare what all processes hold.
        whole = np.asarray(leaf)
        return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

    return jax.tree.map(put, tree)


def on_this_process(tree: Any) -> Any:
    """Replicated arrays as arrays of this process's first device, without a copy."""

    def mine(leaf):
        is_spread = isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1
        return leaf.addressable_data(0) if is_spread else leaf

    return jax.tree.map(mine, tree)


def split_rows(tree: Any, rows: np.ndarray, mesh: Mesh) -> Any:
    """Rows of arrays, split over the devices of a mesh; a process sends no more than its own.

    Args:
      tree: arrays (n, …), the same on every process.
      rows: which of the n, or several times which, (b,) or (k, b).
      mesh: the devices, over which b is split. Where they do not divide b, the last row is
        repeated until they do: a program has to cut the result to b rows.

    Returns:
      Arrays (b', …) or (k, b', …) with b' ≥ b.
    """
    if mesh.size == 1:
        return jax.tree.map(lambda array: array[rows], tree)
    num = -(-rows.shape[-1] // mesh.size) * mesh.size
    rows = rows[..., np.minimum(np.arange(num), rows.shape[-1] - 1)]
    sharding = NamedSharding(mesh, PartitionSpec(*[None] * (rows.ndim - 1), AXIS))

    def put(array):
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            data, impl = jax.random.key_data(array), jax.random.key_impl(array)
            return jax.random.wrap_key_data(put(data), impl=impl)
        whole = np.asarray(array)
        shape = (*rows.shape, *whole.shape[1:])

        def part(index: Any) -> np.ndarray:
            return whole[rows[index[: rows.ndim]]]

        return jax.make_array_from_callback(shape, sharding, part)

    return jax.tree.map(put, tree)


def constrained(tree: Any, mesh: Mesh | None, partition: PartitionSpec) -> Any:
    """Inside a jitted function: says how arrays lie on the devices; nothing on a single one.

    An axis that the devices do not divide is split unevenly, which XLA does by itself.
    """
    if mesh is None or mesh.size == 1:
        return tree
    return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, partition))


def host_share(num_examples: int) -> slice:
    """The contiguous part of 0 … num_examples - 1 that this process measures."""
    bounds = _host_bounds(num_examples)
    return slice(bounds[jax.process_index()], bounds[jax.process_index() + 1])


def gather_hosts(local: np.ndarray, num_examples: int) -> np.ndarray:
    """The results of all processes, in the order of the examples, on every process."""
    if jax.process_count() == 1:
        return local
    # Gathering needs equal shapes; shares differ by at most one example.
    padded = np.zeros((-(-num_examples // jax.process_count()), *local.shape[1:]), local.dtype)
    padded[: len(local)] = local
    shares = multihost_utils.process_allgather(padded)
    lengths = np.diff(_host_bounds(num_examples))
    whole = np.concatenate([share[:k] for share, k in zip(shares, lengths, strict=True)])
    return whole.astype(local.dtype)


def largest_of_hosts(value: float) -> float:
    """The largest of all processes' values; every process must call this."""
    if jax.process_count() == 1:
        return value
    return float(multihost_utils.process_allgather(np.asarray(value, np.float32)).max())


def _host_bounds(num_examples: int) -> list[int]:
    """Where each process's share starts, and the end of the last one."""
    num = jax.process_count()
    return [num_examples * process // num for process in range(num + 1)]


def product_rounding(platform: str) -> float:
    """The relative rounding error of matrix products at the precision that now holds.

    0 for full float32, whose own rounding every dtype tells.

    >>> with jax.default_matmul_precision("default"):
    ...     product_rounding("cpu"), product_rounding("tpu")
    (0.0, 0.0078125)
    """
    precision = getattr(jax.config, "jax_default_matmul_precision", None)
    return _PRODUCT_ROUNDING.get((platform, precision or "default"), 0.0)


def device_kind(mesh: Mesh) -> str:
    """What the measurement ran on, for its record."""
    return mesh.devices.flat[0].device_kind


def platform(mesh: Mesh) -> str:
    """The mesh's kind of hardware: cpu, gpu or tpu."""
    return mesh.devices.flat[0].platform
