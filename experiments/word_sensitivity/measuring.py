"""Word sensitivity of the random maps: the worst move of one word, beside random ones.

    S(X) = sup ‖φ(X with word i moved by Δ) - φ(X)‖/‖φ(X)‖  over ‖Δ‖ ≤ √d, and over i

The supremum over Δ is looked for by `ascend` from several starts; what is found is a lower bound of
it. The first word alone is what the authors' code moves. For RF and DRF, S does not depend on the
words at all: in law these maps see only norms, which are √d.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxsens.perturbations.ascent import Ascent, ascend
from jaxsens.perturbations.ball import Ball
from jaxsens.reporting.cached import cached_stage
from jaxsens.reporting.progress import Bar
from jaxsens.reporting.run_folder import RunFolder

from . import paper
from .config import Config
from .maps import RAF, RELU, FeatureMap, maps_at
from .texts import Gaussian, Pool, Source

#: One row for each cell of a grid: where it is, and a list with a value for each seed.
Row = dict[str, Any]


class Search(NamedTuple):
    """How the worst move is looked for; see `jaxsens.perturbations.ascent`."""

    num_starts: int
    num_steps: int
    num_draws: int

    @classmethod
    def of(cls, config: Config) -> "Search":
        """As the config says."""
        num_draws = -(-config.num_random // config.num_starts)
        return cls(config.num_starts, config.num_steps, num_draws)

    def ascend(self, objective: Any, word: Float[Array, " d"], key: PRNGKeyArray) -> Ascent:
        """Ascents in the ball around a word that is as large as a word."""
        return ascend(objective, word, Ball(word.shape[0] ** 0.5), key=key, **self._asdict())


def measure_grid(config: Config, pools: list[Pool], folder: RunFolder) -> list[Row]:
    """All cells: every map on independent rows, attention also on the other texts."""
    cells: list[tuple[Source, FeatureMap, int, int]] = [
        (Gaussian(), each, n, d)
        for d in config.d
        for n in config.n
        for each in maps_at(config, n, d)
    ]
    others: list[tuple[Source, int, int]] = [
        (Gaussian(config.mean_share), n, d) for d in config.d for n in config.n
    ]
    for pool in pools:
        widths = (*(d for d in config.d if d < pool.width), pool.width)
        long = [n for n in config.n if pool.num_of(n) >= config.num_seeds]
        others += [(pool, n, d) for d in widths for n in long]
    cells += [(source, each, n, d) for source, n, d in others for each in (RAF, RELU)]
    rows = []
    with Bar("first word", "cells", len(cells)) as bar:
        for done, (source, each, n, d) in enumerate(cells, start=1):
            place = {"texts": source.name, "map": each.name, "label": each.label, "d": d, "n": n}
            measure = functools.partial(_first_words, config, source, each, n, d)
            stage = f"first word: {each.name} d={d} n={n} {source.name}"
            rows.append(place | cached_stage(folder, stage, measure))
            bar.update(done, len(cells), f"{each.label}, d={d}, n={n}")
    return with_seeds(rows, "starts")


def measure_all_words(config: Config, folder: RunFolder) -> list[Row]:
    """The worst word of all, and the first word of the same texts and weights."""
    rows = []
    cells = [
        (n, d, each)
        for d in config.d
        for n in config.all_words_n
        for each in maps_at(config, n, d)
        if each.scoring is not None or n * d <= config.all_words_limit
    ]
    for n, d, each in cells:
        place = {"map": each.name, "label": each.label, "d": d, "n": n}
        measure = functools.partial(_all_words, config, each, n, d)
        rows.append(place | cached_stage(folder, f"all words: {each.name} d={d} n={n}", measure))
    return with_seeds(rows, "words")


def measure_stuck(config: Config, pools: list[Pool], folder: RunFolder) -> list[Row]:
    """How often single starts end far below the best: random ones, and the authors' ascent."""
    made_up = (Gaussian(), Gaussian(config.mean_share))
    places: list[tuple[Source, int]] = [(source, d) for d in config.d for source in made_up]
    places += [(pool, pool.width) for pool in pools if pool.num_of(config.stuck_n) > 1]
    rows = []
    for source, d in places:
        for each in (RAF, RELU):
            place = {"texts": source.name, "map": each.name, "label": each.label, "d": d}
            measure = functools.partial(_stuck, config, source, each, d)
            stage = f"stuck: {each.name} d={d} {source.name}"
            rows.append(place | cached_stage(folder, stage, measure))
    return with_seeds(rows, "starts")


def best(row: Row) -> np.ndarray:
    """S of each seed: the best of all starts."""
    return np.array(row["starts"]).max(axis=1)


def random_means(row: Row) -> np.ndarray:
    """The mean over random moves of each seed."""
    return np.array(row["random_mean"])


def of(rows: list[Row], **wanted: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def cell_key(config: Config, purpose: int, n: int, d: int) -> PRNGKeyArray:
    """A random key for each purpose and cell of a grid."""
    key = jax.random.key(config.seed)
    for number in (purpose, n, d):
        key = jax.random.fold_in(key, number)
    return key


def _first_words(config: Config, source: Source, each: FeatureMap, n: int, d: int) -> Row:
    key, num = cell_key(config, 0, n, d), config.num_seeds
    return _over_seeds(config, each, source.texts(key, num, n, d), _first_word)


def _all_words(config: Config, each: FeatureMap, n: int, d: int) -> Row:
    texts = Gaussian().texts(cell_key(config, 0, n, d), config.num_seeds, n, d)
    return _over_seeds(config, each, texts, _words)


def _stuck(config: Config, source: Source, each: FeatureMap, d: int) -> Row:
    n = config.stuck_n
    texts = source.texts(cell_key(config, 2, n, d), config.stuck_seeds, n, d)
    return _over_seeds(config, each, texts, _first_word, _released)


def _over_seeds(
    config: Config, each: FeatureMap, texts: Float[Array, "s n d"], *measures: Any
) -> Row:
    """What the measures find of every seed's text: one program for any number of seeds."""
    key = jax.random.fold_in(cell_key(config, 1, *texts.shape[1:]), each.index)
    search = Search.of(config)
    found: dict[str, list[np.ndarray]] = {}
    for seed, text in enumerate(texts):
        for measure in measures:
            numbers = measure(each, search, text, jax.random.fold_in(key, seed))
            for name, values in numbers.items():
                found.setdefault(name, []).append(np.asarray(values, np.float64))
    for measure in measures:
        # Ten megabytes for each cell, and few cells share a shape.
        measure.clear_cache()
    return _plain(found)


def _plain(found: Mapping[str, Any]) -> Row:
    """The numbers of the seeds that have some: ReLU attention may be 0 on all of a text.

    Where words share a direction all logits may be negative. Then no change is relative to
    anything, and S does not exist.
    """
    values = {name: np.stack(each) for name, each in found.items()}
    finite = [np.isfinite(each.reshape(len(each), -1)).all(axis=1) for each in values.values()]
    there = np.all(finite, axis=0)
    numbers = {name: each[there].tolist() for name, each in values.items()}
    return numbers | {"num_vanishing": int((~there).sum())}


def with_seeds(rows: list[Row], name: str) -> list[Row]:
    """The rows with a mean and an interval: at least two seeds."""
    return [row for row in rows if len(row[name]) > 1]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _first_word(
    each: FeatureMap, search: Search, text: Float[Array, "n d"], key: PRNGKeyArray
) -> dict[str, Array]:
    """What every start found, and the mean and largest change of random moves."""
    map_key, start_key, _ = jax.random.split(key, 3)
    squared = squared_change(each.of_first_word(map_key, text), text[0])
    found = search.ascend(squared, text[0], start_key)
    drawn = jnp.sqrt(found.drawn)
    return {
        "starts": jnp.sqrt(found.values),
        "random_mean": drawn.mean(),
        "random_max": drawn.max(),
    }


@functools.partial(jax.jit, static_argnums=(0, 1))
def _words(
    each: FeatureMap, search: Search, text: Float[Array, "n d"], key: PRNGKeyArray
) -> dict[str, Array]:
    """S of every word, by the best of all starts, and the mean over random moves of each."""
    map_key, start_key = jax.random.split(key)
    params = each.module(*text.shape).init(map_key, text[None])

    def at(place: Array) -> dict[str, Array]:
        squared = squared_change(each.of_word(params, text, place), text[place])
        found = search.ascend(squared, text[place], jax.random.fold_in(start_key, place))
        return {
            "words": jnp.sqrt(found.values.max()),
            "random_means": jnp.sqrt(found.drawn).mean(),
        }

    by_word: dict[str, Array] = jax.lax.map(at, jnp.arange(text.shape[0]))
    return by_word


@functools.partial(jax.jit, static_argnums=(0, 1))
def _released(
    each: FeatureMap, search: Search, text: Float[Array, "n d"], key: PRNGKeyArray
) -> dict[str, Array]:
    """S by the authors' ascent from one start, but with the ball around the clean word."""
    n, d = text.shape
    map_key, _, start_key = jax.random.split(key, 3)
    word, features = text[0], each.of_first_word(map_key, text)
    clean = features(word)
    size = clean.shape[0] ** 0.5

    def rms(point: Array) -> Array:
        return jnp.linalg.norm(features(point) - clean) / size

    def step(point: Array, _: None) -> tuple[Array, None]:
        move = point + paper.RELEASED_RATE * jax.grad(rms)(point) - word
        return word + move * jnp.minimum(1.0, d**0.5 / jnp.linalg.norm(move)), None

    start = word + paper.RELEASED_START * jax.random.normal(start_key, (d,))
    end, _ = jax.lax.scan(step, start, length=paper.RELEASED_STEPS * n)
    return {"released": rms(end) * size / jnp.linalg.norm(clean)}


def squared_change(features: Any, word: Float[Array, " d"]) -> Any:
    """The squared relative change as a function of the word: it has a gradient everywhere."""
    clean = features(word)
    size = jnp.sum(jnp.square(clean))
    return lambda point: jnp.sum(jnp.square(features(point) - clean)) / size
