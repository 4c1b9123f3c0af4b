"""How many examples to draw, and how many draws of each, for an interval of a given length.

A draw of an example costs an edit; its first one also a clean pass. Draws of one example share what
makes that example sensitive, so the variance of the mean over k examples with m draws each is

    V(k, m) = (σ_b² + σ_w²/m)/k,

with σ_b² the variance between examples and σ_w² that of single draws within one. With clean passes
of c operations and edits of e, the cost k (c + m e) of a given V is least at

    m = √(σ_w²/σ_b² · c/e).

If the n examples are all there are, k of them leave σ_b² (1 - k/n) in V: k is smaller then.
"""

import math
from typing import NamedTuple

import numpy as np


class SampleSize(NamedTuple):
    """How many examples in all, how many draws of each new one, and what these will cost."""

    num_examples: int
    num_draws: int
    cost: float


def cheapest_sample(
    between: float,
    within: float,
    variance: float,
    *,
    costs: tuple[float, float],
    num_examples: int,
    most_draws: int,
    is_fixed: bool = False,
    made: tuple[int, float] = (0, 1.0),
    least_examples: int = 1,
) -> SampleSize | None:
    """The cheapest sample whose mean has at most this variance; None if none has.

    Args:
      between: σ_b².
      within: σ_w².
      variance: of the mean, to reach.
      costs: (c, e), of a clean pass and of an edit.
      num_examples: n, the examples there are.
      most_draws: the most draws of an example.
      is_fixed: whether the n examples are all there are.
      made: (k₀, m₀), the examples that were drawn before and the draws of each, which count in the
        variance, Σ (σ_b² + σ_w²/m)/k² over all k examples, and not in the cost.
      least_examples: how many to draw at the least, those included.

    >>> cheapest_sample(1.0, 16.0, 0.01, costs=(1.0, 1.0), num_examples=10_000, most_draws=100)
    SampleSize(num_examples=500, num_draws=4, cost=2500.0)
    >>> cheapest_sample(1.0, 16.0, 0.01, costs=(4.0, 1.0), num_examples=10_000, most_draws=100)
    SampleSize(num_examples=300, num_draws=8, cost=3600.0)

    Of examples that were drawn before, only those that are missing cost anything:

    >>> cheapest_sample(1.0, 16.0, 0.01, costs=(1.0, 1.0), num_examples=10_000, most_draws=100,
    ...                 made=(100, 4.0))
    SampleSize(num_examples=500, num_draws=4, cost=2000.0)

    With fewer examples than that, more draws of each:

    >>> cheapest_sample(1.0, 16.0, 0.01, costs=(1.0, 1.0), num_examples=200, most_draws=100)
    SampleSize(num_examples=200, num_draws=16, cost=3400.0)
    >>> cheapest_sample(1.0, 16.0, 0.01, costs=(1.0, 1.0), num_examples=90, most_draws=1000)
    """
    clean, edit = costs
    m = np.unique(np.geomspace(1, max(most_draws, 1), 400).round())
    m = np.union1d(m, np.arange(1, min(most_draws, 128) + 1))
    allowed = variance + is_fixed * between / num_examples
    of_new, k0 = between + within / m, made[0]
    # k² V = Σ (σ_b² + σ_w²/m) over k₀ old examples and k - k₀ new ones.
    excess = k0 * within * (1 / made[1] - 1 / m)
    root = np.sqrt(np.maximum(of_new**2 + 4 * allowed * excess, 0.0))
    # A hair less than the rounded quotient, so that a whole number stays what it is.
    k = np.maximum(np.ceil((of_new + root) / (2 * allowed) * (1 - 1e-12)), k0)
    feasible = k <= num_examples
    if not feasible.any():
        return None
    k = np.maximum(k, min(least_examples, num_examples))
    cost = np.where(feasible, (k - k0) * (clean + m * edit), math.inf)
    best = int(np.argmin(cost))
    return SampleSize(int(k[best]), int(m[best]), float(cost[best]))
