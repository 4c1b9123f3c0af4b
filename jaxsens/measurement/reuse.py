"""Whether a measurement reuses clean values, and what is said where it cannot.

Two things can go wrong when reuse is prepared, and they are told apart: the model itself cannot be
mapped over edits (`UnmappableError`), or a rule of jaxsens has a fault, whatever it raises then.
"""

import math
from typing import Any

from jaxsens.core.notices import warn_user
from jaxsens.core.runtime import product_rounding
from jaxsens.incremental import UnmappableError, count_costs, table_size
from jaxsens.measurement.batching import ByteBudget
from jaxsens.measurement.jobs import DrawReuse, MeasurementSpec, Reuse
from jaxsens.perturbations.grids import Grid

#: σ_w²/σ_b², the variance of an example's draws over that between examples, as long as nothing was
#: drawn that would tell it.
PRIOR_RATIO = 4.0
#: Draws by reuse are taken if they need less than this share of the operations of whole passes.
_WORTHWHILE = 0.75

#: With more entries in the table of what each position touches, "auto" does not look into reuse.
_LARGEST_TABLE = 1 << 25


def choose_reuse(
    incremental: bool | str,
    spec: MeasurementSpec,
    params: Any,
    shapes: tuple[Any, ...],
    platform: str,
    budget: ByteBudget,
    num_edits: int,
    num_examples: int,
) -> Reuse | None:
    """How clean values are reused, or None for whole forward passes.

    Args:
      incremental: True, False or "auto", as given to `sensitivity`.
      spec: what is measured.
      params: the model's parameters.
      shapes: the shapes of one example and of its context.
      platform: cpu, gpu or tpu.
      budget: the bytes of one call.
      num_edits: of each position, which share what depends on the position alone.
      num_examples: n. Every group of positions is a program more to compile, so for few examples
        positions are cut into fewer groups.
    """
    x, *context = shapes
    grid = spec.perturbation.grid
    if not _is_considered(incremental, grid, x.shape):
        return None
    try:
        costs = count_costs(
            spec.model, params, x, tuple(context), grid, num_edits, platform,
            num_examples=num_examples,
        )  # fmt: skip
    except Exception as error:
        refuse_reuse(error, is_required=incremental is True)
        return None
    if incremental == "auto" and not costs.worthwhile:
        return None
    return Reuse(
        num_position_groups=costs.num_position_groups,
        max_batch=max(1, budget.widest // costs.bytes),
        max_gradient_batch=budget.gradient_batch(costs.bytes, costs.all_bytes),
        max_examples=budget.clean // costs.clean_bytes,
        relative_cost=costs.incremental / max(costs.plain, 1.0),
        rounding=max(costs.rounding, product_rounding(platform)),
        is_required=incremental is True,
    )


def choose_draw_reuse(
    incremental: bool | str,
    spec: MeasurementSpec,
    params: Any,
    shapes: tuple[Any, ...],
    platform: str,
    budget: ByteBudget,
) -> DrawReuse | None:
    """How draws at random positions reuse clean values, or None for whole forward passes.

    With clean passes of c operations, edits of e, and variances σ_b² between examples and σ_w²
    within them, the cheapest sample costs in proportion to (√c σ_b + √e σ_w)². That is compared
    for both ways, at σ_w² = `PRIOR_RATIO` · σ_b². The arguments are those of `choose_reuse`, which
    comes first.
    """
    x, *context = shapes
    grid = spec.perturbation.grid
    if not _is_considered(incremental, grid, x.shape):
        return None
    try:
        costs = count_costs(
            spec.model, params, x, tuple(context), grid, 1, platform, group_counts=(1,)
        )
    except Exception:
        return None  # as `choose_reuse` has said
    plain = max(costs.plain, 1.0)
    clean, edit = costs.clean / plain, costs.edit / plain
    ratio = math.sqrt(PRIOR_RATIO)
    share = ((math.sqrt(clean) + ratio * math.sqrt(edit)) / (1 + ratio)) ** 2
    if incremental == "auto" and share > _WORTHWHILE:
        return None
    return DrawReuse(
        max_batch=max(1, budget.widest // costs.bytes),
        max_examples=budget.clean // costs.clean_bytes,
        clean_cost=clean,
        edit_cost=edit,
        rounding=max(costs.rounding, product_rounding(platform)),
        is_required=incremental is True,
    )


def _is_considered(incremental: bool | str, grid: Grid, shape: tuple[int, ...]) -> bool:
    """Whether to count what reuse would cost for windows of inputs of this shape."""
    if incremental == "auto":
        return table_size(grid, shape) <= _LARGEST_TABLE
    return incremental is not False


def refuse_reuse(error: Exception, *, is_required: bool) -> None:
    """Warns that whole passes are taken, and whose fault that is.

    Args:
      error: why reuse is impossible.
      is_required: whether to raise instead of warning, since `incremental=True` was asked for.

    Raises:
      Exception: what the model, or jaxsens itself, raised, if reuse is required.
    """
    if is_required:
        raise error.__cause__ or error
    reason = "reuse failed, which is a fault of jaxsens: please report it with the model"
    if isinstance(error, UnmappableError):
        reason = "the model cannot be mapped over edits"
    warn_user(
        f"every edit takes a whole forward pass, since {reason} ({type(error).__name__}: {error}); "
        "incremental=False takes them without this warning"
    )
