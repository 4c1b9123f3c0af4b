"""Many trainings of one shape as one program: seeds, rates, decays and data sets side by side.

A lane is one training run. What all lanes share (model, loss, optimiser) is a static `LaneTask`;
what differs between them (random key, learning rate, weight decay, data) is a pytree of arrays with
a leading axis of lanes. Lanes are vmapped, and the steps between two looks at them are one loop on
the device, whose length is an argument: nothing is compiled twice.

Step t of a lane depends on its own state and t alone. So training that was stopped after any step
and continued from its state gives the same bits as training that was never stopped, and a lane that
diverges does not touch the others.

Lanes go through the program in blocks of one size, as many at the same time as there are devices of
all processes, or cores of a single one: the size decides the bits, their number does not. Without a
size, all lanes are one block on a single device, and each device's share is one on several: then
the number of devices decides the bits too.
"""

import functools
from typing import Any, Protocol, runtime_checkable

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from jaxsens.core import runtime


@runtime_checkable
class LaneTask(Protocol):
    """What all lanes share; hashable, so that it is compiled once."""

    def init(self, lane: Any) -> Any:
        """First weights of a lane."""

    def optimizer(self, lane: Any) -> optax.GradientTransformation:
        """Its optimiser; rate and decay may be traced numbers of the lane."""

    def loss(self, params: Any, lane: Any, step: Int[Array, ""]) -> Float[Array, ""]:
        """Its loss at a step, counted from 0; what it draws, it draws by the step's number."""


@runtime_checkable
class EpochTask(LaneTask, Protocol):
    """A task with something to do once for several steps, such as an order of the examples."""

    @property
    def steps_per_epoch(self) -> int:
        """Steps that share what `of_epoch` makes."""

    def of_epoch(self, lane: Any, epoch: Int[Array, ""]) -> Any:
        """The lane as `loss` sees it in an epoch, counted from 0."""


@flax.struct.dataclass
class LaneState:
    """Weights and optimisers of all lanes."""

    params: Any
    opt_state: Any


def start(task: LaneTask, lanes: Any) -> LaneState:
    """All lanes before their first step.

    Args:
      task: what they share.
      lanes: what they do not: arrays (L, …).
    """
    return _start(task, lanes)


def advance(
    task: LaneTask, lanes: Any, state: LaneState, first: int, num: int, block: int | None = None
) -> LaneState:
    """`num` steps of all lanes.

    Args:
      task: what the lanes share.
      lanes: what they do not: arrays (L, …).
      state: the lanes after `first` steps; its memory may be reused, so it is gone afterwards.
      first: steps done.
      num: steps to do.
      block: lanes that are vmapped together; default all of a device. On a CPU a few are faster
        than many, because their weights stay in the cache, and blocks run side by side on its
        cores.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Square:
    ...     def init(self, lane):
    ...         return lane["start"]
    ...     def optimizer(self, lane):
    ...         return optax.sgd(lane["rate"])
    ...     def loss(self, params, lane, step):
    ...         return params**2 / 2
    >>> lanes = {"start": jnp.ones(3), "rate": jnp.array([0.0, 0.5, 1.0])}
    >>> state = start(Square(), lanes)
    >>> advance(Square(), lanes, state, 0, 2).params.tolist()
    [1.0, 0.25, 0.0]
    """
    steps = np.int32(first), np.int32(num)
    return by_blocks(functools.partial(_advance, task), (lanes, state), block, steps)


def by_blocks(
    function: Any,
    of_lanes: tuple[Any, ...],
    block: int | None,
    of_all: tuple[Any, ...] = (),
    mesh: Mesh | None = None,
) -> Any:
    """A function of vmapped lanes, called with `block` of them at a time, side by side.

    Args:
      function: takes trees of arrays (block, …), then `of_all`, and gives such a tree. It is
        compiled once if it is the same function every time, or the same function with the same
        first arguments by `functools.partial`.
      of_lanes: its arguments for all lanes, trees of arrays (L, …), the same on every process.
      block: lanes of a call; the last one is filled up with copies of the last lane.
      of_all: its arguments that lanes share, arrays.
      mesh: the devices, each of which takes whole blocks; default all, of all processes.

    Returns:
      The results for all lanes, on one device of this process.
    """
    mesh = runtime.global_mesh() if mesh is None else mesh
    num = len(jax.tree.leaves(of_lanes)[0])
    size = block or -(-num // mesh.size)
    if jax.process_count() == 1:
        # Not more devices than blocks; of several processes each has to take part.
        mesh = runtime.local_mesh(list(mesh.devices.flat)[: -(-num // size)])
    if mesh.size > 1:
        return _over_devices(function, of_lanes, size, of_all, mesh)
    if block is None or block >= num:
        return function(*of_lanes, *of_all)
    num_concurrent = runtime.num_concurrent_calls(runtime.local_mesh())
    results = []
    for number, first in enumerate(range(0, num, block)):
        chosen = np.minimum(np.arange(first, first + block), num - 1)
        mine = jax.tree.map(lambda values, chosen=chosen: values[chosen], of_lanes)
        with runtime.concurrent_call(number, num_concurrent):
            results.append(function(*mine, *of_all))
    return jax.tree.map(lambda *parts: jnp.concatenate(parts)[:num], *results)


def _over_devices(
    function: Any, of_lanes: tuple[Any, ...], block: int, of_all: tuple[Any, ...], mesh: Mesh
) -> Any:
    """`by_blocks` with a block on every device of the mesh at the same time."""
    num, results = len(jax.tree.leaves(of_lanes)[0]), []
    called, *first_arguments = (
        (function.func, *function.args) if _is_plain_partial(function) else (function,)
    )
    of_all = runtime.replicated(of_all, mesh)
    for first in range(0, num, block * mesh.size):
        chosen = np.minimum(np.arange(first, first + block * mesh.size), num - 1)
        mine = runtime.split_rows(of_lanes, chosen, mesh)
        found = _call_split(called, tuple(first_arguments), mesh, mine, of_all)
        results.append(runtime.on_this_process(found))
    return jax.tree.map(lambda *parts: jnp.concatenate(parts)[:num], *results)


def _is_plain_partial(function: Any) -> bool:
    return isinstance(function, functools.partial) and not function.keywords


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _call_split(
    function: Any, first: tuple[Any, ...], mesh: Mesh, of_lanes: tuple, of_all: tuple
) -> Any:
    """The function on each device's lanes; every device gets the results of all."""

    def call(of_lanes: tuple, of_all: tuple) -> Any:
        return function(*first, *of_lanes, *of_all)

    specs = (runtime.SPLIT, runtime.REPLICATED)
    split = jax.shard_map(call, mesh=mesh, in_specs=specs, out_specs=runtime.SPLIT, check_vma=False)
    return runtime.constrained(split(of_lanes, of_all), mesh, runtime.REPLICATED)


@functools.partial(jax.jit, static_argnums=0)
def _start(task: LaneTask, lanes: Any) -> LaneState:
    def one(lane: Any) -> LaneState:
        params = task.init(lane)
        return LaneState(params, task.optimizer(lane).init(params))

    return jax.vmap(one)(lanes)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def _advance(
    task: LaneTask, lanes: Any, state: LaneState, first: Int[Array, ""], num: Int[Array, ""]
) -> LaneState:
    def one(lane: Any, state: LaneState) -> LaneState:
        optimizer = task.optimizer(lane)

        def train(lane: Any, first: Int[Array, ""], end: Int[Array, ""], state: Any) -> Any:
            def step(number: Int[Array, ""], state: LaneState) -> LaneState:
                gradients = jax.grad(task.loss)(state.params, lane, number)
                # optax's Adam raises a float to an integer power, which strict promotion refuses.
                with jax.numpy_dtype_promotion("standard"):
                    updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
                return LaneState(optax.apply_updates(state.params, updates), opt_state)

            return jax.lax.fori_loop(first, end, step, state)

        end = first + num
        if not isinstance(task, EpochTask):
            return train(lane, first, end, state)
        size = task.steps_per_epoch

        def epoch(number: Int[Array, ""], state: LaneState) -> LaneState:
            start, stop = jnp.maximum(first, number * size), jnp.minimum(end, (number + 1) * size)
            return train(task.of_epoch(lane, number), start, stop, state)

        return jax.lax.fori_loop(first // size, (end + size - 1) // size, epoch, state)

    return jax.vmap(one)(lanes, state)
