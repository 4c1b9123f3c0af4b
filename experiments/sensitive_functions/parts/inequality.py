"""Inequality: what input sensitivity says of weight sharpness, for every model and weight draw.

For any two real functions f and g of n bits, by their Fourier coefficients,

    (√as(f) − √as(g))² / n  ≤  E (f − g)²

since √as is a weighted ℓ² semi-norm and as(h) ≤ n E h². With f a trained model and g the same model
after noise on its weights, the right side is its sharpness in that direction. If the noise destroys
the sensitivity of PARITY, as(f) = n and as(g) = 0, the left side is 1: what Theorem 6 of the paper
says of long inputs.

Theorem 4 and Corollary 5 bound sensitivity by blow-up, with a constant C that depends on weights
and depth and is not stated in numbers. Both sides are given without it, and the smallest C with
which the statement is true of a model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure as Drawing

from jaxsens.figures.style import GREY, PALETTE, new_figure, styled
from jaxsens.reporting.results import Cell, Claim, Table
from jaxsens.reporting.run_folder import RunFolder

from ..._common.figures import saved_figure
from ..config import Config
from ..functions import FUNCTIONS, LABELS, Function
from ..measuring import NOISES, Noise, Record, draws_of
from ..outcome import PartFindings, mean_over_seeds, text_of
from ..partial_functions import TABLE_NOISES, Retrained, learned_extensions, retrained
from ..stages import TrainedModel, points_of
from ..training import json_lists
from .scaling import scaling_models
from .tradeoff import tradeoff_models

#: The models that were trained on whole tables.
_TABLES = "tables"
#: What rounding of float32 sums may add to the left side: a share of the right, and a number.
RELATIVE, ABSOLUTE = 1e-4, 1e-6


@dataclass(frozen=True)
class Pairs:
    """Models and their perturbed copies, for one noise.

    Attributes:
      label: what they were trained on.
      noise: what was done to their weights.
      left: the left side of the inequality, for each pair.
      right: the right side.
    """

    label: str
    noise: Noise
    left: Float[np.ndarray, " k"]
    right: Float[np.ndarray, " k"]

    @property
    def violations(self) -> int:
        """Pairs whose left side is larger by more than rounding."""
        return int(np.sum(self.left > self.right * (1 + RELATIVE) + ABSOLUTE))


def run(config: Config, folder: RunFolder) -> PartFindings:
    """Takes the models of the other parts, training those of `scaling` if they are not there."""
    models = scaling_models(config, folder)
    if "tradeoff" in config.parts:
        models += tradeoff_models(config, folder)
    tables = []
    if "generalisation" in config.parts:
        tables = retrained(config, folder, learned_extensions(config, folder))
    exact = [model for model in models if model.exact and model.finite]
    exact_tables = [model for model in tables if model.exact and model.finite]
    if not exact:
        raise ValueError(
            f"inequality needs models that were measured on all 2ⁿ inputs; none of the lengths has "
            f"2ⁿ <= num_inputs={config.num_inputs}: choose a larger --num-inputs"
        )
    # Blow-up depends on weight decay more than on n: the table has the models of one decay.
    main = [model for model in exact if model.stage.startswith("scaling")]
    pairs = [pairs_of(exact, name, noise) for name in FUNCTIONS for noise in NOISES]
    pairs += [table_pairs(exact_tables, noise) for noise in TABLE_NOISES]
    pairs = [each for each in pairs if len(each.left)]
    num = len(exact) + len(exact_tables)
    total, violations = sum(len(p.left) for p in pairs), sum(p.violations for p in pairs)
    return PartFindings(
        summary=f"The inequality between sensitivity and sharpness holds for {total - violations} "
        f"of {total} pairs of a model and a perturbed copy.",
        claims=(inequality_claim(num, pairs),),
        tables=(pairs_table(pairs), theorem_table(main, config.heads)),
        figures=(
            saved_figure(
                draw(exact, pairs),
                folder,
                "inequality",
                "Left: for every model and draw on the sphere of radius ε√p, the bound by "
                "sensitivities against the change of the output; none may lie above the diagonal. "
                "Right: Fourier weight by degree of the longest models that learnt, before (solid) "
                "and after the noise (dashed).",
            ),
        ),
        values={
            "pairs": total,
            "violations": violations,
            "models": num,
            "models not measured on all inputs": len(models) + len(tables) - num,
        },
    )


def sides(
    record: Record, n: int, noise: Noise, noises: Sequence[Noise] = NOISES
) -> tuple[np.ndarray, np.ndarray]:
    """Both sides for every direction that leaves the outputs finite."""
    clean = record["sensitivity"]
    noisy, right = (draws_of(record, of, noise, noises) for of in ("noisy_sensitivity", "change"))
    finite = np.isfinite(noisy) & np.isfinite(right)
    # A sum of squares, but for rounding.
    roots = math.sqrt(max(0.0, clean)) - np.sqrt(np.maximum(noisy[finite], 0.0))
    return roots**2 / n, right[finite]


def pairs_of(models: Sequence[TrainedModel], function: Function, noise: Noise) -> Pairs:
    """All pairs of a function and a noise."""
    mine = [model for model in models if model.run.function == function]
    return _joined(LABELS[function], noise, [sides(m.record, m.n, noise) for m in mine])


def table_pairs(models: Sequence[Retrained], noise: Noise) -> Pairs:
    """All pairs of the models of `generalisation`, which were trained on whole tables."""
    both = [sides(m.record, m.extension.num_bits, noise, TABLE_NOISES) for m in models]
    return _joined(_TABLES, noise, both)


def _joined(label: str, noise: Noise, both: Sequence[tuple[np.ndarray, np.ndarray]]) -> Pairs:
    left, right = zip(*both, strict=True) if both else ([np.zeros(0)], [np.zeros(0)])
    return Pairs(label, noise, np.concatenate(left), np.concatenate(right))


def inequality_claim(num_models: int, pairs: Sequence[Pairs]) -> Claim:
    """Not one violation."""
    violations, total = sum(p.violations for p in pairs), sum(len(p.left) for p in pairs)
    excess = max((float(np.max(p.left - p.right)) for p in pairs if len(p.left)), default=0.0)
    return Claim(
        statement="(√as(T_θ) − √as(T_θ+Δ))²/n ≤ E(T_θ+Δ − T_θ)² for every model and weight draw",
        paper="not in the paper; it explains the 1 of its Theorem 6",
        measured=f"{violations} violations in {total} pairs of {num_models} models; the left side "
        f"exceeds the right by {excess:.2g} at the most (rounding: up to {RELATIVE:g} of the right "
        f"and {ABSOLUTE:g} are allowed)",
        holds=total > 0 and violations == 0,
        values={"violations": violations, "pairs": total, "largest excess": excess},
        decided_by="violations",
        num_seeds=num_models,
    )


def pairs_table(pairs: Sequence[Pairs]) -> Table:
    """How tight it is."""
    rows: list[tuple[Cell, ...]] = []
    for each in pairs:
        ratio = each.left / np.maximum(each.right, 1e-30)
        rows.append(
            (
                each.label,
                each.noise,
                len(each.left),
                each.violations,
                float(np.mean(each.left)),
                float(np.mean(each.right)),
                float(np.median(ratio)),
                float(np.max(ratio)),
            )
        )
    return Table(
        title="Sensitivity bounds sharpness from below",
        columns=(
            *("function", "noise", "pairs", "violations", "mean left", "mean right"),
            *("median left/right", "largest"),
        ),
        rows=tuple(rows),
        note="Left: (√as(T_θ) − √as(T_θ+Δ))²/n. Right: E(T_θ+Δ − T_θ)², over all 2ⁿ inputs. All "
        "runs, also those that did not learn. Tables: the models of “generalisation” that were "
        "trained on whole tables.",
    )


def theorem_table(models: Sequence[TrainedModel], heads: int) -> Table:
    """Both sides of Theorem 4 and of Corollary 5, without the constant."""
    rows: list[tuple[Cell, ...]] = []
    for point in points_of([model for model in models if model.learnt]):
        n, records = point.n, [model.record for model in point.models]
        growth = math.sqrt(n * math.log(n))
        left = [record["sensitivity"] / growth - heads / n for record in records]
        constants = [
            max(0.0, a) / record["blowup_squared"] for a, record in zip(left, records, strict=True)
        ]
        of_field = {
            name: mean_over_seeds([record[name] for record in records])
            for name in ("theorem4_left", "theorem4_right", "theorem4_constant", "blowup_squared")
        }
        rows.append(
            (
                LABELS[point.function],
                n,
                len(records),
                _short(of_field["theorem4_left"].mean),
                _short(of_field["theorem4_right"].mean),
                _short(of_field["theorem4_constant"].mean),
                text_of(mean_over_seeds(left)),
                _short(of_field["blowup_squared"].mean),
                _short(mean_over_seeds(constants).mean),
            )
        )
    return Table(
        title="Theorem 4 and Corollary 5 on the models that learnt",
        columns=(
            *("function", "n", "models", "Th. 4: E s/√(n log n)", "E right", "C needed"),
            *("Cor. 5: as/√(n log n) − H/n", "E Blowup²", "C needed "),
        ),
        rows=tuple(rows),
        note="Theorem 4: s(f,x)/(C√(n log n)) ≤ Blowup(x)² + (1/n) Σ_i Blowup(x^{⊕i})² for all but "
        "a share H/n² of the inputs; Corollary 5: C·E Blowup² ≥ as/√(n log n) − H/n, H heads. C "
        "depends on weights and depth; its value is not known here, so that neither can be "
        "refuted by a table: given is the smallest C that makes it true, mean over models. Blow-up "
        "by its definition, over both norms of every layer (the theory has one).",
    )


@styled
def draw(models: Sequence[TrainedModel], pairs: Sequence[Pairs]) -> Drawing:
    """The bound against the change, and Fourier weight by degree."""
    fig = new_figure(9.6, 4.0)
    across, degrees = fig.subplots(1, 2)
    colors = dict(zip((*LABELS.values(), _TABLES), PALETTE, strict=False))
    smallest = 1e-6
    # PARITY last, on top.
    for each in reversed([p for p in pairs if p.noise == "sphere"]):
        look = {"color": colors[each.label], "markersize": 3, "alpha": 0.4}
        left = np.maximum(each.left, smallest)
        across.plot(each.right, left, "o", **look, label=each.label)
    ends = np.array([smallest, 10.0])
    across.plot(ends, ends, color=GREY, linewidth=1)
    across.set(
        xscale="log",
        yscale="log",
        xlabel="Change of the output, E(T_θ+Δ − T_θ)²",
        ylabel="(√as(T_θ) − √as(T_θ+Δ))² / n",
    )
    for name in FUNCTIONS:
        learnt = [model for model in models if model.run.function == name and model.learnt]
        if not learnt:
            continue
        longest = max(model.n for model in learnt)
        records = [model.record for model in learnt if model.n == longest]
        for field, style in (("profile", "-"), ("noisy_profile", "--")):
            tables = np.array([json_lists(record[field]) for record in records], float)
            weights = tables if field == "profile" else tables[:, NOISES.index("sphere")]
            degrees.plot(
                np.arange(longest + 1),
                weights.mean(axis=0),
                style,
                marker="o",
                color=colors[LABELS[name]],
                label=f"{LABELS[name]}, n = {longest}" if style == "-" else None,
            )
    degrees.set(xlabel="Degree k", ylabel="Fourier weight W^k", ylim=(0, None))
    for axes in (across, degrees):
        axes.legend()
    return fig


def _short(value: float) -> str:
    return f"{value:.3g}"
