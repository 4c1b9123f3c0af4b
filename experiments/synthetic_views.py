"""Claims and tables of the experiment `synthetic`, from the records of its trained models."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxsens.data.sparse_tokens import TYPES
from jaxsens.estimate import confidence_interval
from jaxsens.results import Cell, Claim, Table

from .synthetic_theory import PREDICTORS, SETTINGS

Record = Mapping[str, Any]
Found = Mapping[int, Sequence[Record]]

#: An accuracy up to this counts as 0, one from 1 − this on as 1.
NEAR = 0.05
_SEEDS = "mean and 95 % Student-t interval over seeds (no width where all seeds agree)"


class Over(NamedTuple):
    """A number over seeds: mean and ends of its 95 % interval; nan if all models diverged."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return self.text(3)

    def text(self, digits: int) -> str:
        """The numbers with that many decimals."""
        if math.isnan(self.mean):
            return "diverged"
        return f"{self.mean:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"

    def drawn(self) -> tuple[float, float, float]:
        """For bars: no bar where all models diverged."""
        return (0.0, 0.0, 0.0) if math.isnan(self.mean) else (self.mean, self.low, self.high)


def by_setting(records: Sequence[Record]) -> dict[int, list[Record]]:
    """The records of each setting."""
    groups: dict[int, list[Record]] = {}
    for record in records:
        groups.setdefault(record["setting"], []).append(record)
    return groups


def over(values: Sequence[float | None]) -> Over:
    """Mean and interval of the models that did not diverge."""
    finite = np.array([v for v in values if v is not None], np.float64)
    if len(finite) < 2:
        return Over(*3 * [float(finite[0]) if len(finite) else math.nan])
    low, high = confidence_interval(finite, (-math.inf, math.inf), 0.95)
    return Over(float(finite.mean()), low, high)


def last(records: Sequence[Record], name: str, index: int | None = None) -> list[float | None]:
    """The number after the last epoch, of every model; of one type of token, if it has three."""
    ends = [record[name][-1] for record in records]
    return ends if index is None else [end[index] for end in ends]


def reaches(value: float, favours: str) -> bool:
    """Whether an accuracy on exchanged sparse tokens says that the favoured tokens are used."""
    return value <= NEAR if favours == "sparse" else value >= 1 - NEAR


def follows(record: Record) -> bool:
    """Whether a model fits and uses the favoured tokens; one that diverged does not."""
    favours = SETTINGS[record["setting"]].favours
    fits = record["loss"][-1] is not None and record["test_accuracy"][-1] >= 1 - NEAR
    return fits and reaches(record["ood_accuracy"][-1], favours)


def summary(found: Found, num_seeds: int, epochs: int) -> str:
    """The main outcome in words."""
    good = [i for i, records in found.items() if _ood_holds(i, records)]
    return (
        f"After {epochs} epochs, {num_seeds} seeds a setting: attention uses the tokens of the "
        f"less sensitive predictor in {len(good)} of {len(found)} settings (accuracy with "
        f"exchanged sparse tokens → 0 or 1); not in "
        + (", ".join(SETTINGS[i].label for i in found if i not in good) or "none")
        + ". Settings are (n_s, n_f, n_d, m)."
    )


def closed_form_claim(predictors: Sequence[Record]) -> Claim:
    """Tables 1 and 3."""
    exact = [
        row["closed_form"] == row["expected"] and row["enumerated"] == [row["closed_form"]]
        for row in predictors
    ]
    shown = sorted({row["closed_form"] for row in predictors} - {"0"})
    return Claim(
        statement="Tables 1 and 3: closed form, exact enumeration of every sequence and the "
        "fractions 194/1475, 849/2950, 664/1475, 39/1150 (m = 36: 41/1250) are equal",
        paper="0.1315, 0.2878, 0.4502, 0.0339, 0",
        measured=f"{sum(exact)} of {len(exact)} rows: {', '.join(shown)}, 0; no variance over "
        f"{predictors[0]['num_sequences']} sequences each",
        holds=all(exact),
    )


def ood_claims(found: Found) -> list[Claim]:
    """Which tokens each setting's models use."""
    claims = []
    for i, records in found.items():
        favours = SETTINGS[i].favours
        target, bound = ("0", f"≤ {NEAR}") if favours == "sparse" else ("1", f"≥ {1 - NEAR}")
        num = sum(follows(record) for record in records)
        claims.append(
            Claim(
                statement=f"{SETTINGS[i].label}: attention uses the {favours} tokens: accuracy "
                f"with exchanged sparse tokens → {target} (95 % interval over seeds {bound})",
                paper=target,
                measured=f"{over(last(records, 'ood_accuracy'))}, {num} of {len(records)} seeds",
                holds=_ood_holds(i, records),
            )
        )
    return claims


def _ood_holds(i: int, records: Sequence[Record]) -> bool:
    ood, favours = over(last(records, "ood_accuracy")), SETTINGS[i].favours
    diverged = any(record["loss"][-1] is None for record in records)
    return not diverged and reaches(ood.high if favours == "sparse" else ood.low, favours)


def test_claim(found: Found) -> Claim:
    """The task is learned."""
    lows = {i: over(last(records, "test_accuracy")) for i, records in found.items()}
    return Claim(
        statement="Test accuracy 1 in all settings (95 % interval over seeds ≥ 0.99)",
        paper="1.0",
        measured="; ".join(f"{SETTINGS[i].label} {value}" for i, value in lows.items()),
        holds=all(value.low >= 0.99 for value in lows.values()),
    )


def sensitivity_claims(found: Found) -> list[Claim]:
    """The learned function against the two predictors."""
    claims = []
    for i, records in found.items():
        low, high = sorted(float(SETTINGS[i].sensitivity(p)) for p in PREDICTORS)
        measured = over([record["final_sensitivity"] for record in records])
        claims.append(
            Claim(
                statement=f"{SETTINGS[i].label}: the trained model's sensitivity is nearer to the "
                "less sensitive predictor's (95 % interval over seeds below the middle)",
                paper=f"predictors {low:.4f} and {high:.4f}",
                measured=measured.text(5),
                holds=measured.high < (low + high) / 2,
            )
        )
    return claims


def alignment_claims(found: Found) -> list[Claim]:
    """The rows of U W_Vᵀ point along the favoured tokens."""
    return [
        _highest(
            found,
            favours,
            "alignment",
            f"{favours.capitalize()}-favouring settings: the rows of U W_Vᵀ are aligned with "
            f"v_{'sp' if favours == 'sparse' else 'freq'} most",
        )
        for favours in PREDICTORS
    ]


def attention_claims(found: Found) -> list[Claim]:
    """Attention is highest on the favoured tokens: in all, and for each token."""
    return [
        _highest(
            found,
            favours,
            name,
            f"{favours.capitalize()}-favouring settings: attention is highest on {favours} tokens, "
            f"{way}",
        )
        for favours in PREDICTORS
        for name, way in (
            ("attention", "summed over the type"),
            ("attention_per_token", "per token (1 = uniform)"),
        )
    ]


def _highest(found: Found, favours: str, name: str, statement: str) -> Claim:
    """Whether the favoured type has the largest number, by the paired difference over seeds."""
    mine = TYPES.index(favours)
    parts, holds = [], True
    for i, records in found.items():
        if SETTINGS[i].favours != favours:
            continue
        means = [over(last(records, name, k)).mean for k in range(len(TYPES))]
        for k in range(len(TYPES)):
            if k != mine:
                pairs = zip(last(records, name, mine), last(records, name, k), strict=True)
                gaps = [a - b for a, b in pairs if a is not None and b is not None]
                holds &= over(gaps).low > 0
        parts.append(f"{SETTINGS[i].label} " + " / ".join(f"{mean:.3f}" for mean in means))
    return Claim(
        statement=f"{statement} (95 % interval of the difference over seeds above 0)",
        paper="Figs 2 and 10",
        measured=f"{' / '.join(TYPES)}: " + "; ".join(parts),
        holds=holds,
    )


def phase_claims(cells: Sequence[Record]) -> list[Claim]:
    """Small initial weights, and larger ones."""
    claims = []
    for i, records in by_setting(cells).items():
        small = [r for r in records if r["sigma"] <= 0.1 and _fits(r)]
        large = [r for r in records if r["sigma"] >= 0.3 and _fits(r)]
        for part, what, wanted in (
            (small, "holds for small initial weights, σ ≤ 0.1 (all seeds)", 1.0),
            (large, "breaks for larger ones, σ ≥ 0.3 (at most half of the seeds)", 0.5),
        ):
            if part:
                share = sum(map(follows, part)) / len(part)
                claims.append(
                    Claim(
                        statement=f"{SETTINGS[i].label}: the claim {what}, at every learning rate "
                        "where the model fits (test accuracy ≥ 0.95)",
                        paper='"small" initialisation, no number',
                        measured=f"{sum(map(follows, part))} of {len(part)} models",
                        holds=share >= wanted if wanted == 1.0 else share <= wanted,
                    )
                )
    return claims


def check_claim(heads: Mapping[str, Sequence[Record]]) -> Claim:
    """The program's way to count flips against the library's."""
    flips = [
        record["flips"] for records in heads.values() for record in records if "flips" in record
    ]
    library, program, number = (sum(column) for column in zip(*flips, strict=True))
    return Claim(
        statement="The program's exact sensitivity counts the flips that jaxsens.sensitivity does",
        paper="–",
        measured=f"{program} and {library} flips of {number} edits of {len(flips)} trained models",
        holds=all(theirs == mine for theirs, mine, _ in flips),
    )


def predictor_table(predictors: Sequence[Record]) -> Table:
    """Tables 1 and 3."""
    return Table(
        title="Sensitivity of the two predictors (Tables 1 and 3)",
        columns=("(n_s, n_f, n_d, m)", "M", "predictor", "paper", "closed form", "", "enumerated"),
        rows=tuple(
            (
                row["setting"],
                row["vocabulary"],
                row["predictor"],
                f"{row['paper']:.4f}",
                row["closed_form"],
                f"{row['value']:.6f}",
                ", ".join(row["enumerated"]),
            )
            for row in predictors
        ),
        note=f"Enumerated: every position × every token of {predictors[0]['num_sequences']} "
        "sequences, all values that occur. The paper prints m = 36 for the last setting, which "
        "needs M ≥ 75, while its 0.0339 needs M = 69, so m = 33; both are here, m = 33 is trained.",
    )


def result_table(found: Found) -> Table:
    """What the trained models do."""
    body: list[tuple[Cell, ...]] = []
    for i, records in found.items():
        setting = SETTINGS[i]
        predictors = " / ".join(f"{float(setting.sensitivity(p)):.4f}" for p in PREDICTORS)
        body.append(
            (
                setting.label,
                setting.favours,
                str(over(last(records, "test_accuracy"))),
                "0" if setting.favours == "sparse" else "1",
                str(over(last(records, "ood_accuracy"))),
                f"{sum(map(follows, records))} of {len(records)}",
                predictors,
                over([record["final_sensitivity"] for record in records]).text(5),
            )
        )
    return Table(
        title="One layer of self-attention, trained",
        columns=(
            *("(n_s, n_f, n_d, m)", "favours", "test acc.", "paper's OOD", "OOD acc.", "seeds"),
            *("S of sparse / frequent", "S of the model"),
        ),
        rows=tuple(body),
        note=f"{_SEEDS}. OOD: the sparse tokens of the other class. Seeds: with test accuracy ≥ "
        "0.95 and OOD accuracy within 0.05 of the paper's. S: exact, every position × every token.",
    )


def inside_table(found: Found) -> Table:
    """What the trained models are made of."""
    body: list[tuple[Cell, ...]] = []
    for i, records in found.items():
        for k, kind in enumerate(TYPES):
            body.append(
                (
                    SETTINGS[i].label,
                    kind,
                    *(
                        str(over(last(records, name, k)))
                        for name in ("alignment", "attention", "attention_per_token")
                    ),
                )
            )
    return Table(
        title="Inside the trained attention models",
        columns=(
            *("(n_s, n_f, n_d, m)", "tokens", "cosine of U W_Vᵀ", "attention, type"),
            "attention per token × T",
        ),
        rows=tuple(body),
        note=f"{_SEEDS}. Cosine: mean over rows, with v_sp, v_freq and v_irrel. Attention: mean "
        "over queries and sequences; per token, 1 is uniform.",
    )


def head_table(by_head: Mapping[str, Found]) -> Table:
    """The controls beside attention."""
    body: list[tuple[Cell, ...]] = []
    for i in range(len(SETTINGS)):
        for head, found in by_head.items():
            records = found[i]
            sensitivity = over([record["final_sensitivity"] for record in records])
            accuracies = (
                str(over(last(records, name)))
                for name in ("train_accuracy", "test_accuracy", "ood_accuracy")
            )
            body.append((SETTINGS[i].label, head, *accuracies, sensitivity.text(5)))
    return Table(
        title="Controls without attention",
        columns=("(n_s, n_f, n_d, m)", "head", "train acc.", "test acc.", "OOD acc.", "S"),
        rows=tuple(body),
        note=f"{_SEEDS}. MLP: hidden layer of 64 ReLU units on the flattened one-hot rows; summing "
        "MLP: on the sum of token embeddings. Same initial scale and epochs, each its own rate.",
    )


def phase_table(cells: Sequence[Record]) -> Table:
    """The phase diagram in numbers."""
    body: list[tuple[Cell, ...]] = []
    for (i, sigma, rate), records in by_cell(cells).items():
        num = sum(record["loss"][-1] is None for record in records)
        accuracies = (
            f"{over(last(records, name)).mean:.3f}" for name in ("test_accuracy", "ood_accuracy")
        )
        share = f"{sum(map(follows, records))} of {len(records)}"
        numbers = (f"{sigma:g}", f"{rate:g}", *accuracies, share, num or None)
        body.append((SETTINGS[i].label, *numbers))
    return Table(
        title="Phase diagram: initial scale and learning rate",
        columns=("(n_s, n_f, n_d, m)", "σ", "rate", "test acc.", "OOD acc.", "seeds", "diverged"),
        rows=tuple(body),
        note="Means over the seeds that did not diverge; seeds: as above, of all.",
    )


def by_cell(cells: Sequence[Record]) -> dict[tuple[int, float, float], list[Record]]:
    """The records of each setting, initial scale and learning rate."""
    groups: dict[tuple[int, float, float], list[Record]] = {}
    for record in cells:
        key = (record["setting"], record["sigma"], record["rate"])
        groups.setdefault(key, []).append(record)
    return groups


def _fits(record: Record) -> bool:
    return record["loss"][-1] is not None and record["test_accuracy"][-1] >= 1 - NEAR
