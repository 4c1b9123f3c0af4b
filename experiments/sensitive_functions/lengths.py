"""Functions of inputs of all lengths: trained up to one, asked at longer ones (Section 5).

No code was released for it, so these choices are ours:

* All lengths from 1 to the longest of training are equally likely, and so are the 2^length inputs.
* The model has as many positions as the longest input asked for has bits, and an input stands at a
  random place among them, so that every position is trained. If all inputs began at the first
  position, those beyond the training lengths would keep their random embeddings, and any function
  would fail there for a reason that has nothing to do with its sensitivity.
  The longest inputs asked for fit in one place only: FIRST is the same position in all of them,
  and so easier than at shorter lengths.
* It is read at its last bit; positions where it does not stand are not visible. FIRST is the first
  visible bit.

Accuracy at a length has a base: what the better constant gets, ½ but for MAJORITY, whose ties count
as 0. So runs are compared by skill, (accuracy − base)/(1 − base): 0 for the better constant, 1 for
the function itself.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jaxsens.models import BitTransformer
from jaxsens.reporting.cached import cached_stage
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.lanes import by_blocks

from .config import Config
from .functions import FUNCTIONS, Function
from .measuring import stage_key
from .stages import even_blocks
from .training import BitTransformerTask, Lanes, Run, json_lists, make_lanes, train_stage

#: What is learned: all but MEAN, the last one, which is not Boolean; lanes number them alike.
ASKED_FUNCTIONS: tuple[Function, ...] = FUNCTIONS[:-1]
#: A run has learnt if its accuracy is at least this at each length of training.
LEARNT_ACCURACY = 0.99
_STAGE = "length"


@dataclass(frozen=True)
class LengthTask(BitTransformerTask):
    """A function of inputs of all lengths up to one: a `LaneTask`.

    Attributes:
      model: what is trained; its positions are as many as the longest input asked for has bits.
      longest: bits of the longest inputs of training.
      batch: inputs drawn for a step.
      tied: whether all layers start from the same weights.
    """

    model: BitTransformer
    longest: int
    batch: int
    tied: bool = True

    def loss(self, params: Any, lane: Lanes, step: Int[Array, ""]) -> Float[Array, ""]:
        """The mean squared error of the inputs that the step draws."""
        keys = jax.random.split(jax.random.fold_in(jax.random.fold_in(lane.key, 1), step))
        lengths = jax.random.randint(keys[0], (self.batch,), 1, self.longest + 1)
        bits, visible = placed(lengths, self.model.length, key=keys[1])
        outputs: Any = self.model.apply(params, bits, visible)
        return jnp.mean(jnp.square(outputs - values_of(lane, bits, visible)))


@dataclass(frozen=True)
class LengthRun:
    """A trained run and its accuracy at every length.

    Attributes:
      function: what it learned.
      seed: its seed.
      longest: the longest length of training.
      accuracies: by length; a run that diverged is never right.
    """

    function: Function
    seed: int
    longest: int
    accuracies: dict[int, float]

    @property
    def trained_accuracy(self) -> float:
        """The smallest accuracy at a length of training."""
        return min(value for n, value in self.accuracies.items() if n <= self.longest)

    @property
    def learnt(self) -> bool:
        """Whether it is right at all lengths of training."""
        return self.trained_accuracy >= LEARNT_ACCURACY

    def skill(self, n: int) -> float:
        """(accuracy − base)/(1 − base) at a length."""
        base = base_rate(self.function, n)
        return (self.accuracies[n] - base) / (1 - base)


def placed(
    lengths: Int[Array, " b"], positions: int, *, key: PRNGKeyArray
) -> tuple[Int[Array, "b n"], Bool[Array, "b n"]]:
    """Uniform inputs of these lengths, each at a uniformly random place: bits, and which belong."""
    for_bits, for_places = jax.random.split(key)
    bits = jax.random.randint(for_bits, (len(lengths), positions), 0, 2)
    starts = jax.random.randint(for_places, lengths.shape, 0, positions - lengths + 1)
    at = jnp.arange(positions, dtype=lengths.dtype)[None]
    return bits, (at >= starts[:, None]) & (at < (starts + lengths)[:, None])


def values_of(
    lane: Lanes, bits: Int[Array, "b n"], visible: Bool[Array, "b n"]
) -> Float[Array, " b"]:
    """The lane's function of the visible bits, 0 or 1."""
    assert lane.function is not None
    lengths = visible.sum(axis=1)
    ones = jnp.where(visible, bits, 0).sum(axis=1)
    start = jnp.argmax(visible, axis=1)
    first = jnp.take_along_axis(bits, start[:, None], axis=1)[:, 0]
    values = {"parity": ones % 2, "majority": 2 * ones > lengths, "first": first}
    table = jnp.stack([values[name].astype(jnp.float32) for name in ASKED_FUNCTIONS], axis=1)
    return jnp.take(table, lane.function, axis=1)


def base_rate(function: Function, n: int) -> float:
    """How often the better constant is right at a length.

    >>> base_rate("parity", 8), base_rate("majority", 2), base_rate("majority", 3)
    (0.5, 0.75, 0.5)
    """
    if function != "majority":
        return 0.5
    ones = sum(math.comb(n, k) for k in range(n // 2 + 1, n + 1)) / 2**n
    return max(ones, 1 - ones)


def trained_lengths(config: Config, folder: RunFolder) -> list[LengthRun]:
    """Trains and asks all runs, or reads what the folder has of them."""
    lengths = (*range(1, config.length_trained + 1), *sorted(config.length_asked))
    model = BitTransformer(max(lengths), config.width, config.layers, config.heads)
    task = LengthTask(model, config.length_trained, config.batch, config.tied)
    runs = [
        Run(function, seed, config.length_rate, config.weight_decay)
        for function in ASKED_FUNCTIONS
        for seed in range(config.seed, config.seed + config.length_seeds)
    ]
    lanes = make_lanes(runs)
    state = train_stage(
        folder,
        _STAGE,
        task,
        lanes,
        runs=runs,
        steps=config.length_steps,
        block=even_blocks(len(runs), config.block),
    )
    found = cached_stage(
        folder,
        f"{_STAGE}, asked",
        lambda: accuracies(
            model,
            lanes,
            state.params,
            lengths,
            config.length_inputs,
            key=stage_key(config.seed, _STAGE),
        ),
    )
    return [
        LengthRun(
            run.function, run.seed, config.length_trained, dict(zip(lengths, of, strict=True))
        )
        for run, of in zip(runs, found, strict=True)
    ]


def accuracies(
    model: BitTransformer,
    lanes: Lanes,
    params: Any,
    lengths: tuple[int, ...],
    num: int,
    *,
    key: PRNGKeyArray,
) -> list[Any]:
    """For each lane, the share of `num` uniform inputs of each length where it is right."""

    def of_lane(lane: Lanes, params: Any, number: Int[Array, ""]) -> Float[Array, " lengths"]:
        def at(length: Int[Array, ""]) -> Float[Array, ""]:
            mine = jax.random.fold_in(jax.random.fold_in(key, number), length)
            bits, visible = placed(jnp.full(num, length), model.length, key=mine)
            outputs: Any = model.apply(params, bits, visible)
            # An output that is not finite is never right.
            right = (outputs > 0.5) == (values_of(lane, bits, visible) > 0.5)
            return jnp.mean((right & jnp.isfinite(outputs)).astype(jnp.float32))

        return jax.lax.map(at, jnp.array(lengths, jnp.int32))

    numbers = jnp.arange(len(lanes.learning_rate), dtype=jnp.int32)
    with jax.default_matmul_precision("highest"):
        found = by_blocks(jax.jit(jax.vmap(of_lane)), (lanes, params, numbers), 1)
    return json_lists(np.asarray(found))
