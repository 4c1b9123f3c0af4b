"""How far an edit of one window spreads through a model, and what each operation costs for it.

Assumption: the time of an operation is in proportion to its multiplications and additions, which
holds for large matrix products and convolutions and not for small ones.
"""

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxsens.core.adapted import takes_models
from jaxsens.core.notices import renamed_attribute
from jaxsens.core.scalars import whole_number
from jaxsens.core.tracing import as_shapes
from jaxsens.incremental import flops
from jaxsens.incremental.costs import count_costs
from jaxsens.incremental.program import CleanValues, Program, make_program
from jaxsens.incremental.values import Dense, Value, Windowed
from jaxsens.measurement import arguments, html, model_arguments
from jaxsens.perturbations.perturbation import Perturbation


@dataclass(frozen=True)
class Step:
    """One operation of the model.

    Attributes:
      name: the name of its primitive.
      shape: the shape of its result for one example.
      share: which part of the result an edit may change: 0 is clean, 1 is all of it (dense).
      turns_dense: whether an edit reaches a window of its operands and all of its result.
      plain: its multiplications and additions in a forward pass.
      incremental: its multiplications and additions for one edit.
    """

    name: str
    shape: tuple[int, ...]
    share: float
    turns_dense: bool
    plain: float
    incremental: float


@dataclass(frozen=True)
class Explanation:
    """Why a model gains from incremental evaluation, or does not.

    Attributes:
      steps: the model's operations that an edit reaches, or that cost anything.
      plain: multiplications and additions of one forward pass.
      incremental: multiplications and additions of one edit, its share of the clean pass included.
      num_position_groups: into how many groups of consecutive positions an example is cut.
      worthwhile: what incremental="auto" decides.

    >>> from jaxsens import Gaussian, Perturbation, Tokens
    >>> weights, x = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((64, 10), (1, 100, 64)))
    >>> noise = Perturbation(Tokens(), Gaussian(sigma=1.0))
    >>> found = explain(lambda weights, x: (x @ weights).sum(axis=1), weights, x, noise)
    >>> [(step.name, step.share) for step in found.steps], found.plain, found.worthwhile
    ([('dot_general', 0.01), ('reduce_sum', 1.0)], 129000.0, True)
    """

    steps: tuple[Step, ...]
    plain: float
    incremental: float
    num_position_groups: int
    worthwhile: bool

    buckets = renamed_attribute("buckets", "num_position_groups")

    def __str__(self) -> str:
        rows = [("operation", "result", "edited", "plain", "edit", ""), *self.cells()]
        rows = [(name[:28], *others) for name, *others in rows]
        wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join([name.ljust(wide[0]), *map(str.rjust, numbers, wide[1:]), mark]).rstrip()
            for name, *numbers, mark in rows
        ]
        gain = self.plain / max(self.incremental, 1.0)
        num = self.num_position_groups
        lines.append(
            f"{_short(self.plain)} operations a forward pass, {_short(self.incremental)} an edit: "
            f"{gain:.1f}× fewer{f', in {num} groups of positions' if num > 1 else ''}; "
            f'incremental="auto" {"reuses" if self.worthwhile else "takes whole forward passes"}'
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html.of_explanation(self)

    def cells(self) -> list[tuple[str, ...]]:
        """Operation, result, edited share, plain and edit cost, and a remark, of every step."""
        return [
            (
                step.name,
                "×".join(map(str, step.shape)) or "scalar",
                "dense" if step.share == 1 else f"{step.share:.1%}",
                _short(step.plain),
                _short(step.incremental),
                "← the window becomes dense" if step.turns_dense else "",
            )
            for step in self.steps
        ]


def _short(count: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {letter}"
    return f"{count:.0f}"


@takes_models
def explain(
    apply_fn: Callable,
    params: Any,
    x: Any,
    perturbation: Perturbation,
    num_samples: int = 5,
    *,
    context: Any = None,
) -> Explanation:
    """What an edit reaches in a model, operation by operation; nothing is compiled or run.

    With operations counted as multiplications and additions, it says whether

        (clean pass + Σ_τ Σ_s what edit (τ, s) reaches) / (T·S)  <  ¾ · (forward pass)

    which is where `sensitivity(incremental="auto")` reuses clean values. A model may stand in place
    of `apply_fn` and `params`, as for `sensitivity`.

    Args:
      apply_fn: the model, as for `sensitivity`.
      params: its parameters, or their shapes.
      x: (n, …) inputs, or their shape; only the shape matters.
      perturbation: the window edit.
      num_samples: S, the edits of a position, which share what depends on the position alone.
      context: as for `sensitivity`.

    Returns:
      The explanation, which prints as a table: `.steps`, `.plain`, `.incremental`, `.worthwhile`.

    Raises:
      ValueError: grid and model do not fit the shapes.
      UnmappableError: the model cannot be mapped over edits, so that every edit takes a whole
        forward pass.

    >>> import jax, jax.numpy as jnp
    >>> from jaxsens import Gaussian, Perturbation, Tokens
    >>> weights = jnp.ones((64, 256)), jnp.ones((256, 2))
    >>> model = lambda w, x: jnp.tanh(x @ w[0]).mean(axis=1) @ w[1]
    >>> noise = Perturbation(Tokens(), Gaussian(sigma=1.0))
    >>> found = explain(model, weights, jnp.ones((1, 32, 64)), noise)
    >>> found.worthwhile, found.plain / found.incremental > 10
    (True, True)
    """
    perturbation = arguments.checked_perturbation(perturbation)
    num_samples = whole_number("num_samples", num_samples)
    arguments.check_function("apply_fn", apply_fn)
    extra = () if context is None else (context,)
    model_arguments.check_shapes(apply_fn, params, x, extra, perturbation)
    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), (x, extra))
    example, context_shapes = one
    shapes, platform, grid = as_shapes(params), jax.default_backend(), perturbation.grid
    costs = count_costs(apply_fn, shapes, example, context_shapes, grid, num_samples, platform)
    program = make_program(
        apply_fn, shapes, example, context_shapes, grid, platform, costs.num_position_groups
    )
    # The position group in the middle stands for all.
    position_group = (len(program.position_groups) - 1) // 2
    reached, spent = _edits(program, position_group, perturbation, num_samples, shapes, one)
    plain = _plain(program, shapes, one)
    shapes_of = jax.eval_shape(program.clean, shapes, *one).values
    steps = []
    for number, operation in enumerate(program.trace.operations):
        if not operation.outputs:
            continue
        result = reached.get(operation.outputs[0])
        inputs = [reached.get(i) for i in operation.inputs if isinstance(i, int)]
        if result is not None or plain[number]:
            steps.append(
                Step(
                    operation.name,
                    shapes_of[operation.outputs[0]].shape,
                    _share(result),
                    isinstance(result, Dense) and any(isinstance(i, Windowed) for i in inputs),
                    plain[number],
                    spent[number] / num_samples,
                )
            )
    return Explanation(
        tuple(steps), costs.plain, costs.incremental, costs.num_position_groups, costs.worthwhile
    )


def _share(value: Value | None) -> float:
    if isinstance(value, Windowed):
        return value.layout.share
    return 1.0 if isinstance(value, Dense) else 0.0


def _edits(
    program: Program,
    position_group: int,
    perturbation: Perturbation,
    samples: int,
    params: Any,
    one: Any,
) -> tuple[dict[int, Value], dict[int, float]]:
    """The values that edits of one position reach, and what operations cost for all of them."""
    x, context = one
    clean = jax.eval_shape(program.clean, params, x, context)
    window = perturbation.grid.window_shape(tuple(x.shape))
    found: dict[int, Value] = {}

    def edits(clean: CleanValues, index: Array, windows: Array) -> Any:
        def edit(window: Array) -> Any:
            out, doubt, values = program.edit_and_values(clean, position_group, index, window)
            found.update(values)
            return out, doubt

        return jax.vmap(edit)(windows)

    windows = jax.ShapeDtypeStruct((samples, *window), x.dtype)
    index = jax.ShapeDtypeStruct((), jnp.int32)
    jaxpr = jax.make_jaxpr(edits)(clean, index, windows).jaxpr
    return found, _by_operation(jaxpr)


def _plain(program: Program, params: Any, one: Any) -> dict[int, float]:
    jaxpr = jax.make_jaxpr(program.forward)(params, *one).jaxpr
    return _by_operation(jaxpr)


def _by_operation(jaxpr: Any) -> dict[int, float]:
    """What each operation of the model costs, by its number, which is in the scope of equations."""
    totals: dict[int, float] = defaultdict(float)
    for equation, cost in flops.costs(jaxpr):
        scope = re.search(r"operation_(\d+)", str(equation.source_info.name_stack))
        if scope is not None:
            totals[int(scope[1])] += cost
    return totals
