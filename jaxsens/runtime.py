"""Devices, hosts and precision: where a measurement runs, never what it measures.

Examples are split over processes (hosts) first and over a process's own devices second. Draws are
keyed by the example's global index, so neither split changes a number.

Assumption: every process makes the same calls with the same arguments, as `jax.distributed` asks.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

#: Matrix products of every measurement run in full float32.
PRECISION = "highest"

AXIS = "examples"
SPLIT = PartitionSpec(AXIS)
SAME = PartitionSpec()


def local_mesh(devices: Sequence[jax.Device] | None = None) -> Mesh:
    """This process's devices (or the given ones) in a row."""
    return Mesh(np.array(devices or jax.local_devices()), (AXIS,))


def over_devices(function: Callable, mesh: Mesh, in_specs: tuple) -> Callable:
    """`function` on each device's share of the arguments marked `SPLIT`; outputs are split too."""
    if mesh.size == 1:
        return function
    return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=SPLIT, check_vma=False)


def place(tree: Any, mesh: Mesh, spec: PartitionSpec) -> Any:
    """Puts arrays on the mesh, split along their first axis or the same on every device."""

    def put(leaf):
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            # A copy that all hosts share: take this host's. A leaf split over hosts has no such copy.
            if not leaf.is_fully_replicated:
                raise ValueError(
                    f"parameters of shape {leaf.shape} are split over hosts; replicate them first "
                    "(jax.device_put with an empty PartitionSpec)"
                )
            leaf = leaf.addressable_data(0)
        return jax.device_put(leaf, NamedSharding(mesh, spec))

    return jax.tree.map(put, tree)


def host_share(num_examples: int) -> slice:
    """The examples that this process measures: a contiguous share."""
    bounds = np.linspace(0, num_examples, jax.process_count() + 1).astype(int)
    return slice(int(bounds[jax.process_index()]), int(bounds[jax.process_index() + 1]))


def gather_hosts(local: np.ndarray, num_examples: int) -> np.ndarray:
    """All processes' shares, in order, on every process."""
    if jax.process_count() == 1:
        return local
    # Gathering needs equal shapes; shares differ by at most one example.
    size = -(-num_examples // jax.process_count()) + 1
    padded = np.zeros((size, *local.shape[1:]), local.dtype)
    padded[: len(local)] = local
    shares = multihost_utils.process_allgather(padded)
    bounds = np.linspace(0, num_examples, jax.process_count() + 1).astype(int)
    lengths = np.diff(bounds)
    return np.concatenate([share[:k] for share, k in zip(shares, lengths, strict=True)])


def device_kind() -> str:
    """What the measurement ran on, for its record."""
    return jax.local_devices()[0].device_kind
