"""Do two quantities order the models alike? Spearman's rank correlation of their means."""

import itertools
import math
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

    Args:
      first: for each model one quantity, image by image; the same images for all models.
      second: the other quantity, on images of its own.
    """
    one, other = np.stack(first), np.stack(second)
    random = np.random.default_rng(0)
    resampled = [
        _spearman(_resampled(one, random), _resampled(other, random)) for _ in range(NUM_RESAMPLES)
    ]
    low, high = np.quantile(resampled, (0.025, 0.975))
    x, y = one.mean(axis=1), other.mean(axis=1)
    value = _spearman(x, y)
    exact = len(one) <= NUM_EXACT
    by_chance = [_spearman(x, order) for order in _orders(y, random)]
    # All orders contain the one found; beside random ones it must be counted itself, lest p be 0.
    as_good = [found >= value - 1e-9 for found in by_chance] + ([] if exact else [True])
    return RankCorrelation(value, float(low), float(high), float(np.mean(as_good)), len(one), exact)


def _resampled(table: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return table[:, random.integers(0, table.shape[1], table.shape[1])].mean(axis=1)


def _orders(values: np.ndarray, random: np.random.Generator) -> Iterator[np.ndarray]:
    if len(values) <= NUM_EXACT:
        return map(np.array, itertools.permutations(values))
    return (random.permutation(values) for _ in range(NUM_RANDOM))


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's correlation of the ranks; 0 where all values of one are equal."""
    ranks = [_ranks(values) - (len(values) + 1) / 2 for values in (x, y)]
    size = math.sqrt(float((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    return float(ranks[0] @ ranks[1]) / size if size else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    """From 1 on; equal values share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]
