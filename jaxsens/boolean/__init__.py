"""Functions on the Boolean cube {−1, +1}^d: Fourier side, sensitivity, decision trees, examples.

A function is its table of values: 2^d numbers, the value at the point of index b at place b, where
bit i of b is set if x_i = −1. The same number read as a set U of coordinates names the character

    χ_U(x) = ∏_{i∈U} x_i,        f(x) = Σ_U f̂(U) χ_U(x),        f̂(U) = 2^{−d} Σ_x f(x) χ_U(x).
"""

from jaxsens.boolean.complexity import (
    DecisionTree,
    average_sensitivity,
    decision_tree,
    influences,
    maximum_sensitivity,
    pointwise_sensitivity,
)
from jaxsens.boolean.fourier import (
    average_sensitivity_from_fourier,
    degree,
    fourier_coefficients,
    noise_stability,
    values_from_fourier,
    walsh_hadamard,
    weight_by_degree,
)
from jaxsens.boolean.functions import (
    and_,
    first,
    from_table,
    majority,
    mean,
    or_,
    parity,
    random_function,
    random_of_degree,
    tribes,
)
from jaxsens.boolean.points import (
    character,
    coordinates_of,
    cube,
    degrees,
    flip,
    index_of,
    mask_of,
    table_of,
)

__all__ = [
    "DecisionTree",
    "and_",
    "average_sensitivity",
    "average_sensitivity_from_fourier",
    "character",
    "coordinates_of",
    "cube",
    "decision_tree",
    "degree",
    "degrees",
    "first",
    "flip",
    "fourier_coefficients",
    "from_table",
    "index_of",
    "influences",
    "majority",
    "mask_of",
    "maximum_sensitivity",
    "mean",
    "noise_stability",
    "or_",
    "parity",
    "pointwise_sensitivity",
    "random_function",
    "random_of_degree",
    "table_of",
    "tribes",
    "values_from_fourier",
    "walsh_hadamard",
    "weight_by_degree",
]
