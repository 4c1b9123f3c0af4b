"""Occlusion maps: how much the predicted class loses when one window of the input is covered.

    map(i, τ) = Δ( f(x_i), f(x_i with window τ replaced) )

with Δ the drop of the predicted class's probability. It is a sensitivity without randomness: one
replacement at every position of every example, by the same programs, with the same reuse of what
the window cannot reach.
"""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array

from jaxsens.core.adapted import takes_models
from jaxsens.measurement import metrics
from jaxsens.measurement._sensitivity import sensitivity
from jaxsens.measurement.estimate import SensitivityEstimate
from jaxsens.measurement.jobs import ApplyFn
from jaxsens.perturbations.grids import Grid
from jaxsens.perturbations.perturbation import Perturbation
from jaxsens.perturbations.replacement import Replace


@takes_models
def occlusion(
    apply_fn: ApplyFn,
    params: Any,
    x: Any,
    grid: Grid,
    value: Any = 0.0,
    *,
    metric: metrics.Metric | Callable[[Array, Array], Array] = metrics.probability_drop,
    **options: Any,
) -> SensitivityEstimate:
    """How much the predicted class of each example loses when a window of it is replaced.

        map(i, τ) = p_ŷ(x_i) - p_ŷ(x_i with window τ replaced),    ŷ the prediction for x_i

    Above 0 the window speaks for the prediction, below 0 against it. The numbers are those of
    captum's `FeatureAblation` with the windows as features; `jaxsens.spread` makes of overlapping
    windows the map over pixels that captum's `Occlusion` gives.

    Args:
      apply_fn: the model, as for `sensitivity`.
      params: its parameters.
      x: (n, …) inputs.
      grid: the windows, such as `Patches(4)`, `OverlappingPatches(4)` or `Tokens()`.
      value: what they are replaced by: a number, "mean", "blur", an array, or a `Replace`.
      metric: another change of the output, such as `jaxsens.logit_drop`.
      **options: as for `sensitivity`: context, mask, example_ids, incremental, chunk_bytes,
        devices, progress, check. A key changes nothing.

    Returns:
      The estimate, whose `per_example_position` (n, T) is the map; its mean over examples has an
      interval, and `plot(x)` lays the map over the inputs.

    Raises:
      ValueError: as for `sensitivity`; or the value is none that fits the examples.

    >>> import jax.numpy as jnp
    >>> from jaxsens import Patches
    >>> x = jnp.zeros((1, 4, 4, 1)).at[0, :2, :2].set(1.0)
    >>> found = occlusion(lambda _, x: x.sum(axis=(1, 2, 3)), (), x, Patches(2))
    >>> found.per_example_position.round(3).tolist()
    [[0.482, 0.0, 0.0, 0.0]]
    """
    edit = value if isinstance(value, Replace) else Replace(value)
    options = {"key": jax.random.key(0), **options}
    return sensitivity(
        apply_fn, params, x, Perturbation(grid, edit), "all", metric=metric, **options
    )
