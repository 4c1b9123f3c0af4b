"""Context modification: can one changed word make a model say the opposite?

A linear model of φ interpolates N texts (θ*). A new text X of label y is learnt, by fine-tuning on
it alone or by retraining on all. Then one word is moved to make X(Δ), whose label is said to be -y:

    γ = |φ(X(Δ))ᵀθ* - φ(X)ᵀθ*|,    Err = (φ(X(Δ))ᵀθ + y)²

Δ is the best found for one of three objectives: `features` (F_f + 1)², `feat_align` (F_r + 1)²,
which do not know the labels, and `loss`, Err itself. See `jaxsens.training.min_norm` for F.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxsens.reporting.cached import cached_stage
from jaxsens.reporting.progress import Bar
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.min_norm import OneMore, fine_tuned, min_norm_fit, retrained

from .config import Config
from .maps import RAF, RELU, RF, FeatureMap, deep
from .measuring import Row, Search, cell_key
from .texts import Gaussian, Pool, Source

TRAININGS = ("fine-tuned", "retrained")
OBJECTIVES = ("features", "feat_align", "loss")
#: The objective that each training has beside `loss`.
OWN = {"fine-tuned": "features", "retrained": "feat_align"}


class Setting(NamedTuple):
    """Texts of one kind, their sizes, and how many are interpolated."""

    source: Source
    d: int
    n: int
    num_train: int


def settings(config: Config, pools: list[Pool]) -> list[Setting]:
    """Independent rows, and every pool that has enough texts."""
    sizes = [(n, num) for n in config.context_n for num in config.context_train]
    found = [Setting(Gaussian(), config.context_d, n, num) for n, num in sizes]
    for pool in pools:
        d = min(config.context_d, pool.width)
        found += [Setting(pool, d, n, num) for n, num in sizes if num < min(pool.num_of(n), n * d)]
    return found


def maps_of(config: Config, setting: Setting) -> list[FeatureMap]:
    """The maps of a setting."""
    room = setting.n * setting.d <= config.context_dense_limit
    return [RF, *(map(deep, config.context_dense) if room else ()), RAF, RELU]


def measure_contexts(config: Config, pools: list[Pool], folder: RunFolder) -> list[Row]:
    """One row for each setting, map, seed, training and objective."""
    cells = [
        (setting, each, seed)
        for setting in settings(config, pools)
        for each in maps_of(config, setting)
        for seed in range(config.context_seeds)
    ]
    rows: list[Row] = []
    with Bar("context", "fits", len(cells)) as bar:
        for done, (setting, each, seed) in enumerate(cells, start=1):
            source, d, n, num = setting
            place = {"texts": source.name, "d": d, "n": n, "num_train": num}
            place |= {"map": each.name, "label": each.label, "seed": seed}
            measure = functools.partial(_points, config, setting, each, seed)
            stage = f"context: {each.name} d={d} n={n} N={num} seed={seed} {source.name}"
            rows += [place | point for point in cached_stage(folder, stage, measure)]
            bar.update(done, len(cells), f"{each.label}, seed {seed}")
    return rows


def _points(config: Config, setting: Setting, each: FeatureMap, seed: int) -> list[Row]:
    source, d, n, num = setting
    key = jax.random.fold_in(cell_key(config, 3, n, d), num)
    data_key, map_key, start_key = jax.random.split(jax.random.fold_in(key, seed), 3)
    texts, labels = source.labelled(data_key, num + 1, n, d)
    # The maps of a seed share their texts, but not their weights.
    features, of_word = each.fitted(jax.random.fold_in(map_key, each.index), texts)
    word, y = texts[-1, 0], float(labels[-1])
    phi = np.asarray(_features(of_word, word), np.float64)
    if not (np.asarray(features) != 0).any(axis=1).all():
        return []  # ReLU attention may be 0 on all of a text: no model of it interpolates
    fit = min_norm_fit(np.asarray(features)[:-1].astype(np.float64), labels[:-1])
    del texts, features  # hundreds of megabytes each
    models = {"fine-tuned": fine_tuned(fit, phi, y), "retrained": retrained(fit, phi, y)}
    before = float(phi @ fit.theta)
    search = Search.of(config)

    # Without labels the move is the same for both trainings.
    wanted = {OWN[name]: (model.aligned, -1.0) for name, model in models.items()}
    wanted |= {name: (model.theta, -y) for name, model in models.items()}
    vectors, targets = map(np.float32, zip(*wanted.values(), strict=True))
    words = _closest(search, of_word, word, vectors, targets, start_key)
    moved = dict(zip(wanted, words, strict=True))
    points = []
    for name, model in models.items():
        for objective in OBJECTIVES:
            chosen = moved[name if objective == "loss" else objective]
            there = np.asarray(_features(of_word, chosen), np.float64)
            numbers = point(model, fit.theta, there, before, y)
            points.append({"training": name, "objective": objective} | numbers)
    return points


def point(
    model: OneMore, theta: Float[np.ndarray, " p"], there: Float[np.ndarray, " p"],
    before: float, y: float,
) -> dict[str, float]:  # fmt: skip
    """γ, Err and F of one modified text, and by how much the exact inequality is broken.

    |φ(X(Δ))ᵀθ - y| ≤ γ + |F - 1| |y - φ(X)ᵀθ*| holds for every map, whatever Δ.

    Args:
      model: fine-tuned or retrained.
      theta: θ*.
      there: φ(X(Δ)).
      before: φ(X)ᵀθ*.
      y: label of X.
    """
    gamma = abs(float(there @ theta) - before)
    says, alignment = float(there @ model.theta), float(there @ model.aligned)
    excess = abs(says - y) - gamma - abs(alignment - 1) * abs(y - before)
    return {"gamma": gamma, "err": (says + y) ** 2, "alignment": alignment, "excess": excess}


@functools.partial(jax.jit, static_argnums=0)
def _closest(
    search: Search,
    of_word: Any,
    word: Float[Array, " d"],
    vectors: Float[Array, "m p"],
    targets: Float[Array, " m"],
    key: PRNGKeyArray,
) -> Float[Array, "m d"]:
    """The words in the ball that bring each vectorᵀφ closest to its target.

    All are looked for side by side: large weights are read once per step, and not once for each.
    """
    search = search._replace(num_draws=1)

    def closest(vector: Float[Array, " p"], target: Float[Array, ""]) -> Float[Array, " d"]:
        squared = lambda point: -jnp.square(vector @ of_word(point) - target)  # noqa: E731
        return search.ascend(squared, word, key).best

    return jax.vmap(closest)(vectors, targets)


#: Called once for each kind of map and not operation by operation.
_features = jax.jit(lambda of_word, word: of_word(word))
