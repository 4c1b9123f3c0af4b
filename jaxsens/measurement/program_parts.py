"""What the jitted programs of exhaustive measurements and of random draws have in common."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import lax
from jaxtyping import Array, Int, Shaped

from jaxsens import incremental
from jaxsens.core import runtime
from jaxsens.incremental.program import CleanValues, Program
from jaxsens.measurement.arguments import shapes
from jaxsens.measurement.batching import BatchPlan
from jaxsens.measurement.jobs import Context, MeasurementSpec


def over_groups(
    function: Callable,
    of_examples: tuple[Any, ...],
    group: int,
    num_groups: Int[Array, ""],
    nothing: tuple[Array, ...],
) -> tuple[Array, ...]:
    """What a function gives for the examples of one device, a group after the other.

    Args:
      function: from arrays of a group to a tuple of results, each with an axis of examples first.
      of_examples: the same arrays of all examples.
      group: how many examples go together; it divides their number.
      num_groups: how many groups there are without those of padding alone.
      nothing: the results before the first group; those of padding stay as they are here.
    """

    def add_group(index, results):
        some = jax.tree.map(
            lambda a: lax.dynamic_slice_in_dim(a, index * group, group), of_examples
        )
        return jax.tree.map(
            lambda all_of, new: lax.dynamic_update_slice_in_dim(all_of, new, index * group, axis=0),
            results,
            function(*some),
        )

    return lax.fori_loop(0, num_groups, add_group, nothing)


class EditsByReuse(NamedTuple):
    """Edits of one example at a time, with all that an edit cannot reach computed once per example.

    Attributes:
      spec: what is measured.
      program: the model in two halves: clean values, and edits that reuse them.
      rounding: the relative rounding error of the model's coarsest numbers, ε.
    """

    spec: MeasurementSpec
    program: Program
    rounding: float

    @classmethod
    def of(
        cls,
        spec: MeasurementSpec,
        plan: BatchPlan,
        platform: str,
        params: Any,
        x: Shaped[Array, "c ..."],
        context: Context,
    ) -> "EditsByReuse":
        """Those of these examples; of their arrays, only the shapes matter here."""
        x_shape, context_shapes = shapes((x, context))
        program = incremental.make_program(
            spec.model, params, x_shape, context_shapes, spec.perturbation.grid, platform,
            plan.num_position_groups,
        )  # fmt: skip
        return cls(spec, program, max(program.rounding, runtime.product_rounding(platform)))

    def change(
        self,
        clean: CleanValues,
        position_group: int,
        index: Int[Array, ""],
        window: Shaped[Array, "..."],
    ) -> tuple[Array, Array]:
        """The change that new entries of a window make, and the edited output.

        Args:
          clean: the clean values of the example.
          position_group: the number of the position's group.
          index: the position, counted in its group.
          window: the new entries.
        """
        edited, doubt = self.program.edit(clean, position_group, index, window)
        clean_output = self.program.output(clean)
        return self.spec.decided_change(clean_output, edited, doubt, self.rounding), edited
