"""What a measurement of the command line found: tables, figures, and numbers for programs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxsens import figures
from jaxsens.core import hosts
from jaxsens.measurement import SensitivityEstimate, compare
from jaxsens.measuring.config import Config
from jaxsens.measuring.data import Examples
from jaxsens.measuring.models import Model
from jaxsens.reporting.results import Figure, Findings, Table
from jaxsens.reporting.run_folder import RunFolder


@dataclass(frozen=True)
class Measured:
    """A model, the examples as it takes them, and its estimate."""

    model: Model
    examples: Examples
    estimate: SensitivityEstimate


def findings_of(config: Config, measured: Sequence[Measured], folder: RunFolder) -> Findings:
    """Tables of estimates and paired differences, maps of positions, the most sensitive examples.

    Args:
      config: of the run.
      measured: every model with its estimate.
      folder: where figures go.
    """
    first = measured[0]
    tables, drawings = [_estimates_table(measured)], []
    if len(measured) > 1:
        tables.append(_differences_table(measured))
    for number, each in enumerate(measured):
        label, estimate = each.model.label, each.estimate
        kind = "Each patch" if len(estimate.layout) == 2 else "Each position"
        caption = f"{kind}, mean over {estimate.num_examples} examples: {label}"
        drawings.append((f"positions_{number}", estimate.plot(), caption))
        # Of draws at random positions an example has a few, which say little of it.
        if config.shown and estimate.provenance.positions == "all":
            chosen = estimate.most_changed(config.shown)
            tables.append(_examples_table(each, chosen))
            shown = _examples_figure(each, chosen)
            if shown is not None:
                caption = f"The examples whose predictions change most: {label}"
                drawings.append((f"examples_{number}", shown, caption))
    return Findings(
        title=f"Sensitivity of {first.model.label}",
        summary=_summary(measured),
        claims=(),
        tables=tuple(tables),
        figures=tuple(_saved(folder, *drawing) for drawing in drawings),
        values=_values(measured),
    )


def _summary(measured: Sequence[Measured]) -> str:
    sentences = [f"{each.model.label}: {each.estimate}." for each in measured]
    for each in measured[1:]:
        first = measured[0]
        said = compare(first.estimate, each.estimate)
        sentences.append(f"{first.model.label} minus {each.model.label}: {said}.")
    return " ".join(sentences)


def _estimates_table(measured: Sequence[Measured]) -> Table:
    rows = []
    for each in measured:
        estimate = each.estimate
        low, high = estimate.ci()
        rows.append(
            (
                each.model.label, estimate.mean, _finite(low), _finite(high),
                estimate.num_examples, estimate.num_positions, estimate.num_draws,
                estimate.provenance.num_passes, round(estimate.provenance.seconds, 1),
                "yes" if estimate.provenance.incremental else "no",
            )
        )  # fmt: skip
    made = measured[0].estimate.provenance
    columns = ("model", "mean", "low", "high", "n", "T", "draws", "passes", "seconds", "reuse")
    return Table(
        f"Mean {made.metric.replace('_', ' ')}, with its 95 % interval",
        columns,
        tuple(rows),
        f"{made.perturbation}; {made.positions} positions, "
        + ("every replacement" if made.exact else f"S={made.num_samples}")
        + "; intervals are clustered by example.",
    )


def _differences_table(measured: Sequence[Measured]) -> Table:
    first, *others = measured
    rows = []
    for other in others:
        found = compare(first.estimate, other.estimate)
        low, high = found.ci()
        larger = "neither" if low <= 0 <= high else (first if low > 0 else other).model.label
        named = f"{first.model.label} - {other.model.label}"
        rows.append((named, found.mean, _finite(low), _finite(high), found.num_differing, larger))
    columns = ("difference", "mean", "low", "high", "examples that differ", "larger")
    note = "Example by example, on the same examples with the same draws; 95 % intervals."
    return Table("Paired differences", columns, tuple(rows), note)


def _examples_table(each: Measured, chosen: np.ndarray) -> Table:
    estimate, examples = each.estimate, each.examples
    predictions = _predictions(each.model, examples, chosen)
    rows = []
    for number, prediction in zip(chosen.tolist(), predictions, strict=True):
        of_positions = estimate.per_example_position[number]
        position = int(np.nanargmax(np.abs(of_positions)))
        rows.append(
            (
                examples.names[number] if examples.names is not None else str(number),
                prediction,
                float(estimate.per_example[number]),
                _place(estimate, examples, number, position),
                float(of_positions[position]),
            )
        )
    columns = ("example", "prediction", "mean", "most at", "there")
    return Table(f"The most sensitive examples: {each.model.label}", columns, tuple(rows))


def _predictions(model: Model, examples: Examples, chosen: np.ndarray) -> list[str]:
    """The predicted class of some examples, or the sign of their score."""
    x = examples.x[np.asarray(chosen)]
    context = jax.tree.map(lambda values: np.asarray(values[chosen]), examples.context)
    given = () if context is None else (context,)
    outputs = np.asarray(jax.jit(model.apply_fn)(model.params, np.asarray(x), *given), np.float64)
    if outputs.ndim == 1 or outputs.shape[1:] == (1,):
        return [f"{score:+.3g}" for score in outputs.ravel()]
    if outputs.ndim == 2:
        return [f"class {row.argmax()}" for row in outputs]
    return ["" for _ in outputs]


def _place(estimate: SensitivityEstimate, examples: Examples, number: int, position: int) -> str:
    if len(estimate.layout) == 2:
        row, column = divmod(position, estimate.layout[1])
        return f"row {row}, column {column}"
    if examples.words is not None:
        return f"{position}: {examples.words[number][position]}"
    return str(position)


def _examples_figure(each: Measured, chosen: np.ndarray) -> Any:
    """Pictures with maps over them, or coloured words; None if examples are neither."""
    estimate, examples = each.estimate, each.examples
    if examples.words is not None:
        return estimate.plot(tokens=examples.words, examples=chosen.tolist())
    pictures = examples.pictures
    if pictures is None or len(estimate.layout) != 2:
        return None
    if not {pictures.shape[1], pictures.shape[3]} & {1, 3}:
        return None
    return estimate.plot(pictures, examples=chosen.tolist())


def _saved(folder: RunFolder, name: str, drawing: Any, caption: str) -> Figure:
    if hosts.is_first():
        figures.save(drawing, folder.figures, name)
    return Figure(f"figures/{name}.png", caption)


def _values(measured: Sequence[Measured]) -> dict[str, Any]:
    values: dict[str, Any] = {
        "estimates": {each.model.label: each.estimate.summary() for each in measured}
    }
    first, *others = measured
    for other in others:
        found = compare(first.estimate, other.estimate)
        low, high = found.ci()
        values.setdefault("differences", {})[other.model.label] = {
            "mean": found.mean, "low": _finite(low), "high": _finite(high),
        }  # fmt: skip
    return values


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
