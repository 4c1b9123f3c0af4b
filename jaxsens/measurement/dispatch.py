"""How examples, or single positions of them, are dealt out to calls of a compiled program.

Each call gets whole groups of a batch plan, split evenly over the devices; some calls run while the
results of those before are received.
"""

import collections
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jax.sharding import Mesh

from jaxsens.core import runtime
from jaxsens.core.call_log import Arrays, CallLog
from jaxsens.measurement.batching import BatchPlan

#: From the items of a call, the slots of its results and what `Send` gave to those on the host.
Receive = Callable[[np.ndarray, np.ndarray, Any], Arrays]
#: From what a call is given, in its slots, and how many of each device's are valid, to its results.
Send = Callable[[np.ndarray, np.ndarray], Any]


def run_calls(
    items: np.ndarray, plan: BatchPlan, mesh: Mesh, send: Send
) -> Iterator[tuple[np.ndarray, np.ndarray, Any]]:
    """Sends items to the devices, call after call, and gives the results in their order.

    Args:
      items: numbers of examples, or of whatever is dealt out.
      plan: how many go into a call.
      mesh: this process's devices.
      send: calls the compiled program, without waiting for its results.

    Yields:
      The items of a call, the slots of its results in which they are, and what `send` returned.
    """
    num_concurrent = runtime.num_concurrent_calls(mesh)
    yield from _run(pieces(items, plan, mesh.size, num_concurrent), plan, mesh, send)


def run_kept_calls(
    items: np.ndarray, plan: BatchPlan, mesh: Mesh, send: Send, receive: Receive, calls: CallLog
) -> Iterator[tuple[np.ndarray, Arrays]]:
    """The same, but calls whose results are known are not made again.

    Args:
      items: as above.
      plan: as above.
      mesh: as above.
      send: as above.
      receive: waits for the results of a call and gives them as NumPy arrays.
      calls: knows results, and takes new ones.

    Yields:
      The items of a call and its results.
    """
    left = pieces(items, plan, mesh.size, runtime.num_concurrent_calls(mesh))
    while left and (found := calls.recall()) is not None:
        yield left.pop(0), found
    for piece, slots, sent in _run(left, plan, mesh, send):
        found = receive(piece, slots, sent)
        calls.add(found)
        yield piece, found


def _run(
    pieces_left: list[np.ndarray], plan: BatchPlan, mesh: Mesh, send: Send
) -> Iterator[tuple[np.ndarray, np.ndarray, Any]]:
    num_concurrent = runtime.num_concurrent_calls(mesh)
    pending: collections.deque = collections.deque()
    for number, piece in enumerate(pieces_left):
        dealt, num_valid, slots = deal(piece, mesh.size, plan.chunk)
        with runtime.concurrent_call(number, num_concurrent):
            sent = send(dealt, num_valid)
        pending.append((piece, slots, sent))
        if len(pending) > num_concurrent:
            yield pending.popleft()
    yield from pending


def pieces(
    items: np.ndarray, plan: BatchPlan, num_devices: int, num_concurrent: int
) -> list[np.ndarray]:
    """The items of each call: whole groups, about as many to each of the concurrent calls."""
    if not len(items):
        return []
    group = plan.group * num_devices
    groups = np.arange(-(-len(items) // group))
    num_calls = -(-len(groups) // (plan.chunk // plan.group))
    num_calls = -(-num_calls // num_concurrent) * num_concurrent
    shares = np.array_split(groups, max(1, min(num_calls, len(groups))))
    return np.split(items, [share[0] * group for share in shares[1:]])


def deal(
    items: np.ndarray, num_devices: int, chunk: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Deals the items of a call out evenly to the devices.

    Returns:
      The items in their slots, (devices · chunk), of which each device's last ones are padding; how
      many of each device's are valid, (devices,); and the slots of those.
    """
    shares = np.array_split(items, num_devices)
    num_valid = np.array([len(share) for share in shares], np.int32)
    slots = np.arange(chunk)[None, :]
    starts = np.cumsum(num_valid) - num_valid
    dealt = items[np.minimum(starts[:, None] + slots, len(items) - 1)]
    return dealt.ravel(), num_valid, np.flatnonzero((slots < num_valid[:, None]).ravel())
