"""Random functions that are known in part: what a transformer makes of the rest (Figs 4, 15).

Step 1. f is a random Boolean function on m bits. A transformer is trained on f at some of the 2ᵐ
inputs and gives, by a threshold at ½, a function on all of them: the learned extension, if it is
right at all inputs of training. A random extension has the same labels there and fair coins
elsewhere.

Step 2. Other transformers are trained on the whole table of a learned and of a random extension,
and their sharpness is measured: of functions that differ in sensitivity but agree on the same
labels.

The sets of inputs of one function and one subset number are nested, and training starts from the
same weights for all sizes, so that these differ in nothing else. In step 2, likewise, the learned
and the random extension of the same labels share first weights and batches.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jaxsens import boolean
from jaxsens.core.intervals import Interval
from jaxsens.reporting.cached import cached_stage
from jaxsens.reporting.run_folder import RunFolder

from .config import Config
from .functions import bits_of
from .measuring import Measurement, Noise, Record, draws_of, measured_stage, stage_key
from .outcome import mean_over_seeds
from .stages import even_blocks
from .training import LEARNT, BitTask, Lanes, train_stage

Kind = Literal["learned", "random"]
KINDS: tuple[Kind, ...] = ("learned", "random")
_FIT, _RETRAINED = "generalisation-fit", "generalisation-retrained"
#: What is done to the weights of models that were trained on whole tables.
TABLE_NOISES: tuple[Noise, ...] = ("sphere", "gaussian")


@dataclass(frozen=True, eq=False)
class Partial:
    """A random function that is known at some inputs.

    Attributes:
      function: number of the function.
      subset: number of the random order of all inputs, of which the first are known.
      target: its values, a table.
      points: the inputs where it is known.
      coins: the values of its random extension elsewhere.
    """

    function: int
    subset: int
    target: Bool[np.ndarray, " N"]
    points: Int[np.ndarray, " m"]
    coins: Bool[np.ndarray, " N"]

    @property
    def size(self) -> int:
        """How many inputs are known."""
        return len(self.points)

    @property
    def random(self) -> Bool[np.ndarray, " N"]:
        """The random extension: labels where there are some, coins elsewhere."""
        table = self.coins.copy()
        table[self.points] = self.target[self.points]
        return table


@dataclass(frozen=True, eq=False)
class Extension:
    """A partial function and what a transformer made of it.

    Attributes:
      partial: what was known.
      learned: the function that it learned, a table.
    """

    partial: Partial
    learned: Bool[np.ndarray, " N"]

    @property
    def fits(self) -> bool:
        """Whether it is right at all inputs of training."""
        known = self.partial.points
        return bool((self.learned[known] == self.partial.target[known]).all())

    @property
    def num_bits(self) -> int:
        """Of an input."""
        return len(self.learned).bit_length() - 1

    @property
    def open(self) -> bool:
        """Whether there was anything left to extend."""
        return self.partial.size < len(self.learned)

    def table(self, kind: Kind) -> Bool[np.ndarray, " N"]:
        """The learned or the random extension."""
        return self.learned if kind == "learned" else self.partial.random

    @property
    def other_accuracy(self) -> float:
        """Share of the other inputs where it is right; nan if there are none."""
        others = np.setdiff1d(np.arange(len(self.learned)), self.partial.points)
        right = self.learned[others] == self.partial.target[others]
        return float(right.mean()) if len(others) else float("nan")


@dataclass(frozen=True, eq=False)
class Retrained:
    """A transformer that was trained on a whole table in step 2.

    Attributes:
      extension: whose table.
      kind: which of its tables.
      seed: number of the run.
      record: what was measured of it.
    """

    extension: Extension
    kind: Kind
    seed: int
    record: Record

    @property
    def sensitivity(self) -> float:
        """Of the table that it was trained on."""
        return sensitivity(self.extension.table(self.kind))

    @property
    def exact(self) -> bool:
        """Whether it was measured on all inputs."""
        return "sensitivity" in self.record

    @property
    def finite(self) -> bool:
        """Whether it did not diverge."""
        return self.record["loss"] is not None

    @property
    def learnt(self) -> bool:
        """Whether it passes the paper's filter."""
        loss = self.record["loss"]
        return loss is not None and loss < LEARNT

    def sharpness(self, kind: str) -> float:
        """By definition, on a sphere, or as released, by Gaussians."""
        if kind == "definition":
            return float(draws_of(self.record, "change", "sphere", TABLE_NOISES).mean())
        return float(draws_of(self.record, "increase", "gaussian", TABLE_NOISES).mean())


def sensitivity(table: Bool[np.ndarray, " N"]) -> float:
    """The exact average sensitivity of a Boolean function.

    >>> sensitivity(np.array([False, True, True, False]))
    2.0
    """
    return float(boolean.average_sensitivity(np.where(table, 1, -1)))


def profile(table: Bool[np.ndarray, " N"]) -> np.ndarray:
    """W^k = Σ_{|S|=k} f̂(S)², k = 0 … m, of the ±1 function.

    >>> profile(np.array([False, True, True, False])).tolist()
    [0.0, 0.0, 1.0]
    """
    return np.asarray(boolean.weight_by_degree(np.where(table, 1.0, -1.0).astype(np.float32)))


def over_functions(extensions: Sequence[Extension], values: Sequence[float]) -> Interval:
    """The mean of each function's values, then over functions."""
    groups: dict[int, list[float]] = {}
    for extension, value in zip(extensions, values, strict=True):
        groups.setdefault(extension.partial.function, []).append(value)
    return mean_over_seeds([float(np.mean(group)) for group in groups.values()])


def partial_functions(config: Config) -> list[Partial]:
    """All functions, subsets and sizes, in this order."""
    num, key = 2**config.generalisation_bits, stage_key(config.seed, "generalisation")

    def coins(*numbers: int) -> Bool[np.ndarray, " N"]:
        return np.asarray(jax.random.bernoulli(_folded(key, *numbers), shape=(num,)))

    found = []
    for function in range(config.generalisation_functions):
        target = coins(0, function)
        for subset in range(config.generalisation_subsets):
            order = np.asarray(jax.random.permutation(_folded(key, 1, function, subset), num))
            for size in sorted(config.generalisation_sizes):
                other = coins(2, function, subset, size)
                found.append(Partial(function, subset, target, order[:size], other))
    return found


def learned_extensions(config: Config, folder: RunFolder) -> list[Extension]:
    """Step 1: trains on all partial functions, or reads what was learned."""
    partials, task = partial_functions(config), _task(config)
    largest = max(p.size for p in partials)
    numbers = [p.function * config.generalisation_subsets + p.subset for p in partials]
    lanes = _lanes(
        config,
        stage_key(config.seed, _FIT),
        numbers,
        [p.target for p in partials],
        # Repeated to one length: drawing from it is drawing from the set itself.
        np.stack([np.tile(p.points, largest // p.size) for p in partials]),
    )

    def learned() -> list[str]:
        state = train_stage(
            folder,
            _FIT,
            task,
            lanes,
            runs=[(p.function, p.subset, p.size) for p in partials],
            steps=config.generalisation_steps,
            block=even_blocks(len(partials), config.block),
        )
        bits = bits_of(jnp.arange(2**task.model.length, dtype=jnp.int32), task.model.length)
        with jax.default_matmul_precision("highest"):
            outputs = jax.jit(
                functools.partial(jax.lax.map, lambda params: task.model.apply(params, bits))
            )
            tables = np.asarray(outputs(state.params)) > 0.5
        return [_text(table) for table in tables]

    texts = cached_stage(folder, "generalisation, learned functions", learned)
    return [Extension(p, _table(text)) for p, text in zip(partials, texts, strict=True)]


def retrained(
    config: Config, folder: RunFolder, extensions: Sequence[Extension]
) -> list[Retrained]:
    """Step 2: trains on whole tables of extensions that fit, and measures."""
    plan: list[tuple[int, Kind, int]] = [
        (place, kind, seed)
        for place, extension in enumerate(extensions)
        if extension.fits
        for kind in KINDS
        if kind == "learned" or extension.partial.size in config.generalisation_random_sizes
        if kind == "learned" or extension.open
        for seed in range(config.generalisation_retrain_seeds)
    ]
    if not plan:
        return []
    task, tables = _task(config), [extensions[place].table(kind) for place, kind, _ in plan]
    # The same key, thus first weights and batches, for both extensions of the same labels.
    numbers = [place * config.generalisation_retrain_seeds + seed for place, _, seed in plan]
    lanes = _lanes(config, stage_key(config.seed, _RETRAINED), numbers, tables)
    state = train_stage(
        folder,
        _RETRAINED,
        task,
        lanes,
        runs=[(*each, _text(table)) for each, table in zip(plan, tables, strict=True)],
        steps=config.generalisation_steps,
        block=even_blocks(len(plan), config.block),
    )
    spec = Measurement(
        task.model, config.epsilon, config.num_directions, config.num_inputs, TABLE_NOISES
    )
    records = measured_stage(folder, _RETRAINED, spec, lanes, state.params, seed=config.seed)
    return [
        Retrained(extensions[place], kind, seed, record)
        for (place, kind, seed), record in zip(plan, records, strict=True)
    ]


def _task(config: Config) -> BitTask:
    return config.task(config.generalisation_bits)


def _lanes(
    config: Config,
    key: jax.Array,
    numbers: Sequence[int],
    tables: Sequence[np.ndarray],
    points: np.ndarray | None = None,
) -> Lanes:
    num = len(tables)
    return Lanes(
        key=jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.array(numbers)),
        learning_rate=jnp.full(num, config.generalisation_rate),
        weight_decay=jnp.full(num, config.weight_decay),
        table=jnp.asarray(np.stack(tables).astype(np.float32)),
        points=None if points is None else jnp.asarray(points, jnp.int32),
    )


def _folded(key: jax.Array, *numbers: int) -> Array:
    for number in numbers:
        key = jax.random.fold_in(key, number)
    return key


def _text(table: Bool[np.ndarray, " N"]) -> str:
    """A table for a record: one letter per value."""
    return "".join("1" if value else "0" for value in table)


def _table(text: str) -> Bool[np.ndarray, " N"]:
    return np.array([letter == "1" for letter in text])
