"""Every confidence interval of jaxsens, one function for each idea.

    basics      Interval, Student's t, several intervals at once
    means       the mean of independent values, few of which may be far from the others
    pairs       differences and ratios of two means
    two_way     the mean of a table whose rows and columns are both random
    population  the mean over examples that are all there are
    ranks       rank correlation of two quantities over models, also given a third

Assumption: examples (seeds, runs) are independent draws from what the interval speaks of; but in
`population` they are what it speaks of.
"""

from jaxsens.core.intervals.basics import (
    REAL_LINE,
    Bounds,
    Interval,
    bonferroni,
    student_half_width,
    student_interval,
)
from jaxsens.core.intervals.means import mean_interval
from jaxsens.core.intervals.pairs import (
    difference_bounds,
    independent_difference,
    paired_difference,
    ratio_of_means,
)
from jaxsens.core.intervals.population import (
    noise_variance,
    population_interval,
    population_variance,
)
from jaxsens.core.intervals.ranks import (
    RankCorrelation,
    partial_rank_correlation,
    rank_correlation,
)
from jaxsens.core.intervals.two_way import two_way_interval, two_way_variance

__all__ = [
    "REAL_LINE",
    "Bounds",
    "Interval",
    "RankCorrelation",
    "bonferroni",
    "difference_bounds",
    "independent_difference",
    "mean_interval",
    "noise_variance",
    "paired_difference",
    "partial_rank_correlation",
    "population_interval",
    "population_variance",
    "rank_correlation",
    "ratio_of_means",
    "student_half_width",
    "student_interval",
    "two_way_interval",
    "two_way_variance",
]
