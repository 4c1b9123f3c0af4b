"""How examples, or single positions of them, are dealt out to calls of a compiled program.

Each call gets whole groups of a batch plan, split evenly over the devices; some calls run while the
results of those before are received.
"""

import collections
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jax.sharding import Mesh

from jaxsens.core import runtime
from jaxsens.core.call_log import Arrays, CallLog
from jaxsens.measurement.batching import BatchPlan

#: About how long a call may take where results are kept, and how many calls are timed first: the
#: program is compiled in the first of them.
SECONDS_PER_CALL, NUM_TIMED = 8.0, 2

#: `send(dealt, num_valid)`: results of a call that is given items in its slots, padding included,
#: and how many of each device's are valid.
Send = Callable[[np.ndarray, np.ndarray], Any]
#: `receive(items, slots, sent)`: the results of these items on the host; `sent`, what `send` gave,
#: has them in these slots.
Receive = Callable[[np.ndarray, np.ndarray, Any], Arrays]


def run_calls(
    items: np.ndarray, plan: BatchPlan, mesh: Mesh, send: Send, receive: Receive, calls: CallLog
) -> Iterator[tuple[np.ndarray, Arrays]]:
    """Sends items to the devices, call after call, and gives the results in their order.

    Calls whose results are known are not made again, and long ones are cut: an interruption loses
    the calls that are running. So where results are kept, two calls of one group for each device
    say how long a group takes, and later calls take about `SECONDS_PER_CALL`. Groups stay the same
    however long the calls are, and so do the results: items that do not fill a group of every
    device are dealt out in a last call of their own.

    Args:
      items: numbers of examples, or of whatever is dealt out.
      plan: how many go into a call.
      mesh: this process's devices.
      send: calls the compiled program, without waiting for its results.
      receive: waits for the results of a call and gives them as NumPy arrays.
      calls: knows results, and takes new ones.

    Yields:
      The items of a call and its results.
    """
    while len(items) and (found := calls.recall()) is not None:
        known, items = np.split(items, [int(found.pop("num_items"))])
        yield known, found
    num_concurrent = runtime.num_concurrent_calls(mesh)
    if not calls.is_kept:
        left = pieces(items, plan, mesh.size, num_concurrent)
        yield from _run_and_keep(left, plan, mesh, send, receive, calls)
        return
    unit, most = plan.group * mesh.size, plan.chunk // plan.group
    for _ in range(NUM_TIMED if most > 1 else 0):
        started = time.perf_counter()
        first, items = np.split(items, [unit])
        yield from _run_and_keep([first] if len(first) else [], plan, mesh, send, receive, calls)
        most = min(plan.chunk // plan.group, groups_per_call(time.perf_counter() - started))
    smaller = dataclasses.replace(plan, chunk=most * plan.group)
    whole, rest = np.split(items, [len(items) // unit * unit])
    left = pieces(whole, smaller, mesh.size, num_concurrent) + ([rest] if len(rest) else [])
    yield from _run_and_keep(left, plan, mesh, send, receive, calls)


def groups_per_call(seconds: float) -> int:
    """How many groups a call may have, if one takes so long."""
    return max(1, int(SECONDS_PER_CALL / max(seconds, 1e-9)))


def _run_and_keep(
    left: list[np.ndarray], plan: BatchPlan, mesh: Mesh, send: Send, receive: Receive,
    calls: CallLog,
) -> Iterator[tuple[np.ndarray, Arrays]]:  # fmt: skip
    for piece, slots, sent in _run(left, plan, mesh, send):
        found = receive(piece, slots, sent)
        calls.add(found | {"num_items": np.array(len(piece))})
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
