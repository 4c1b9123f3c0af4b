"""Do two quantities order the models alike? Spearman's rank correlation of their means.

Its interval is made of the correlations of resampled images. Noise takes models out of order: where
two quantities order the models alike, those of resampled images are smaller than the one found, as
the one found is smaller than the true one, and their quantiles [a, b] miss a true 1 nearly always
with 8 models that the noise can swap. So the interval also holds their mirror image at the value
found, [2·value - b, 2·value - a], which knows that direction but is too short for few models.

Assumption: models differ by more than a fraction of their standard errors. Four models whose means
are 0.2 standard errors apart and in the same order are covered to 0.7.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

NUM_RESAMPLES = 1000
#: Up to this many models all orders are tried for the p-value, beyond it random ones.
NUM_EXACT, NUM_RANDOM = 7, 5000


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rank correlation of two quantities over some models.

    Attributes:
      value: of the means over all images.
      low: lower end of the 95 % interval over resampled images. It tells how well these models were
        measured, not how other models would behave.
      high: its upper end.
      p_value: share of the orders of the models with at least this correlation.
      num_models: how many models. Those that differ in an intervention only count as any other,
        though they are not independent.
      exact: whether all orders were tried, or `NUM_RANDOM` random ones and the one found.
    """

    value: float
    low: float
    high: float
    p_value: float
    num_models: int
    exact: bool

    def __str__(self) -> str:
        return (
            f"{self.value:.2f} over {self.num_models} models (95 % interval {self.low:.2f} to "
            f"{self.high:.2f} over resampled images; p = {self.p_value:.3f}, "
            + ("exact over all orders)" if self.exact else f"from {NUM_RANDOM} random orders)")
        )


def rank_correlation(
    first: Sequence[Float[np.ndarray, " n"]], second: Sequence[Float[np.ndarray, " m"]]
) -> RankCorrelation:
    """Rank correlation of the means of two quantities measured on each model.

    >>> images = np.random.default_rng(0).normal(size=(3, 50))
    >>> size, error = images + [[0.0], [1.0], [2.0]], images + [[0.0], [3.0], [6.0]]
    >>> print(rank_correlation([*size], [*error]))
    1.00 over 3 models (95 % interval 1.00 to 1.00 over resampled images; p = 0.167, exact over all
    orders)

    Args:
      first: for each model one quantity, image by image; the same images for all models.
      second: the other quantity, on images of its own.
    """
    one, other = np.stack(first), np.stack(second)
    tables, random = [(t, t.shape[1]) for t in (one, other)], np.random.default_rng(0)
    resampled = [
        [table[:, random.integers(0, n, n)].mean(axis=1) for table, n in tables]
        for _ in range(NUM_RESAMPLES)
    ]
    low, high = np.quantile(_spearman(*map(np.stack, zip(*resampled, strict=True))), (0.025, 0.975))
    x, y = one.mean(axis=1), other.mean(axis=1)
    value = float(_spearman(x[None], y[None])[0])
    low, high = min(low, 2 * value - high), max(high, 2 * value - low)
    low, high = max(float(low), -1.0), min(float(high), 1.0)
    exact = len(one) <= NUM_EXACT
    by_chance = _spearman(x[None], np.stack([*_orders(y, random)]))
    # All orders contain the one found; beside random ones it must be counted itself, lest p be 0.
    as_good = [*(by_chance >= value - 1e-9), *([] if exact else [True])]
    return RankCorrelation(value, low, high, float(np.mean(as_good)), len(one), exact)


def _orders(
    values: Float[np.ndarray, " k"], random: np.random.Generator
) -> Iterator[Float[np.ndarray, " k"]]:
    if len(values) <= NUM_EXACT:
        return map(np.array, itertools.permutations(values))
    return (random.permutation(values) for _ in range(NUM_RANDOM))


def _spearman(
    x: Float[np.ndarray, "#m k"], y: Float[np.ndarray, "#m k"]
) -> Float[np.ndarray, " m"]:
    """Pearson's correlation of the ranks of each row; 0 where all values of one are equal."""
    first, second = (_ranks(values) - (values.shape[1] + 1) / 2 for values in (x, y))
    size = np.sqrt(np.square(first).sum(axis=1) * np.square(second).sum(axis=1))
    return (first * second).sum(axis=1) / np.where(size > 0, size, 1.0)


def _ranks(values: Float[np.ndarray, "m k"]) -> Float[np.ndarray, "m k"]:
    """From 1 on in each row; equal values share the mean of their ranks."""
    this, others = values[:, :, None], values[:, None, :]
    return (others < this).sum(axis=2) + ((others == this).sum(axis=2) + 1) / 2
