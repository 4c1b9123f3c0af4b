"""Whether a measurement reuses clean values, and what is said where it cannot.

Two things can go wrong when reuse is prepared, and they are told apart: the model itself cannot be
mapped over edits (`UnmappableError`), or a rule of jaxsens has a fault, whatever it raises then.
"""

from typing import Any

from jaxsens.core.notices import warn_user
from jaxsens.incremental import UnmappableError, count_costs, table_size
from jaxsens.measurement.batching import ByteBudget
from jaxsens.measurement.jobs import MeasurementSpec, Reuse

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
    """
    if incremental is False:
        return None
    x, *context = shapes
    grid = spec.perturbation.grid
    if incremental == "auto" and table_size(grid, x.shape) > _LARGEST_TABLE:
        return None
    try:
        costs = count_costs(spec.apply_fn, params, x, tuple(context), grid, num_edits, platform)
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
        rounding=costs.rounding,
        is_required=incremental is True,
    )


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
