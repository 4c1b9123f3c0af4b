"""Claims of the experiment `synthetic`, from the records of its trained models."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jaxsens.data.generated.sparse_tokens import TYPES
from jaxsens.reporting.results import Claim

from .._common.claims import number_or_none
from .seeds import (
    NEAR,
    MeanOverSeeds,
    Record,
    RecordsBySetting,
    by_setting,
    final_value,
    final_values,
    fits,
    follows,
    mean_over_seeds,
    reaches,
    share_following,
)
from .theory import PREDICTORS, SETTINGS


def summary(logistic: RecordsBySetting, squared: RecordsBySetting, num_seeds: int) -> str:
    """The main outcome in words."""
    return (
        f"With {num_seeds} seeds per setting, attention uses the tokens of the less sensitive "
        f"predictor (accuracy with exchanged sparse tokens → 0 or 1) in {_good(logistic)} with the "
        f"logistic and in {_good(squared)} with the squared loss. Settings are (n_s, n_f, n_d, m)."
    )


def _good(found: RecordsBySetting) -> str:
    failing = [SETTINGS[i].label for i, records in found.items() if not _ood_holds(i, records)]
    without = f", not in {', '.join(failing)}," if failing else ""
    return f"{len(found) - len(failing)} of {len(found)} settings{without}"


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
        values={
            f"{row['setting']}, {row['predictor']}": {
                "paper": row["paper"],
                "closed form": row["closed_form"],
                "enumerated": row["enumerated"],
            }
            for row in predictors
        },
        decided_by="all of them, in exact arithmetic",
        num_examples=predictors[0]["num_sequences"],
    )


def trained_claims(found: RecordsBySetting) -> list[Claim]:
    """All that is claimed of models trained with one loss."""
    claims = (
        *ood_claims(found),
        test_claim(found),
        *sensitivity_claims(found),
        *alignment_claims(found),
        *attention_claims(found),
    )
    loss = next(iter(found.values()))[0]["objective"].capitalize()
    return [replace(claim, statement=f"{loss} loss: {claim.statement}") for claim in claims]


def ood_claims(found: RecordsBySetting) -> list[Claim]:
    """Which tokens each setting's models use."""
    claims = []
    for i, records in found.items():
        favours = SETTINGS[i].favours
        target, bound = ("0", f"≤ {NEAR}") if favours == "sparse" else ("1", f"≥ {1 - NEAR}")
        ood, part = final_value(records, "ood_accuracy"), share_following(records)
        claims.append(
            Claim(
                statement=f"{SETTINGS[i].label}: attention uses the {favours} tokens: accuracy "
                f"with exchanged sparse tokens → {target} (95 % interval over seeds {bound}, and "
                "most seeds do, share > 1/2)",
                paper=target,
                measured=f"{ood}; share of {len(records)} seeds {part}",
                holds=_ood_holds(i, records),
                values={"accuracy": number_or_none(ood.mean), "share of seeds": part.mean}
                | {"share of seeds, 95 % interval": part.ends},
                decided_by="accuracy",
                interval=ood.ends,
                num_seeds=len(records),
            )
        )
    return claims


def _ood_holds(i: int, records: Sequence[Record]) -> bool:
    ood, favours = final_value(records, "ood_accuracy"), SETTINGS[i].favours
    near = reaches(ood.high if favours == "sparse" else ood.low, favours)
    return near and share_following(records).low > 0.5


def test_claim(found: RecordsBySetting) -> Claim:
    """The task is learned."""
    accuracies = {
        SETTINGS[i].label: final_value(records, "test_accuracy") for i, records in found.items()
    }
    lowest = min(accuracies, key=lambda label: accuracies[label].low)
    return Claim(
        statement="Test accuracy 1 in all settings (95 % interval over seeds ≥ 0.99)",
        paper="1.0",
        measured="; ".join(f"{label} {value}" for label, value in accuracies.items()),
        holds=all(value.low >= 0.99 for value in accuracies.values()),
        values={label: number_or_none(value.mean) for label, value in accuracies.items()},
        decided_by=lowest,
        interval=accuracies[lowest].ends,
        num_seeds=min(map(len, found.values())),
    )


def sensitivity_claims(found: RecordsBySetting) -> list[Claim]:
    """The learned function against the two predictors."""
    claims = []
    for i, records in found.items():
        low, high = sorted(float(SETTINGS[i].sensitivity(p)) for p in PREDICTORS)
        measured = final_value(records, "final_sensitivity")
        claims.append(
            Claim(
                statement=f"{SETTINGS[i].label}: the trained model's sensitivity is nearer to the "
                "less sensitive predictor's (95 % interval over seeds below the middle)",
                paper=f"predictors {low:.4f} and {high:.4f}",
                measured=measured.text(5),
                holds=measured.high < (low + high) / 2,
                values={
                    "trained model": number_or_none(measured.mean),
                    "less sensitive predictor": low,
                    "more sensitive predictor": high,
                },
                decided_by="trained model",
                interval=measured.ends,
                num_seeds=len(records),
            )
        )
    return claims


def alignment_claims(found: RecordsBySetting) -> list[Claim]:
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


def attention_claims(found: RecordsBySetting) -> list[Claim]:
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


def _highest(found: RecordsBySetting, favours: str, name: str, statement: str) -> Claim:
    """Whether the favoured type has the largest number, by the paired difference over seeds."""
    of_kind = {i: records for i, records in found.items() if SETTINGS[i].favours == favours}
    means = {
        SETTINGS[i].label: [final_value(records, name, k).mean for k in range(len(TYPES))]
        for i, records in of_kind.items()
    }
    differences = {
        f"{SETTINGS[i].label}: {favours} − {other}": _paired(records, name, favours, other)
        for i, records in of_kind.items()
        for other in TYPES
        if other != favours
    }
    smallest = min(differences, key=lambda pair: differences[pair].low)
    listed = (
        f"{label} " + " / ".join(f"{mean:.3f}" for mean in of_types)
        for label, of_types in means.items()
    )
    return Claim(
        statement=f"{statement} (95 % interval of the difference over seeds above 0)",
        paper="Figs 2 and 10",
        measured=f"{' / '.join(TYPES)}: " + "; ".join(listed),
        holds=all(difference.low > 0 for difference in differences.values()),
        values={
            label: dict(zip(TYPES, map(number_or_none, of_types), strict=True))
            for label, of_types in means.items()
        }
        | {pair: number_or_none(difference.mean) for pair, difference in differences.items()},
        decided_by=smallest,
        interval=differences[smallest].ends,
        num_seeds=min(map(len, of_kind.values())),
    )


def _paired(records: Sequence[Record], name: str, one: str, other: str) -> MeanOverSeeds:
    """The difference of two types of tokens, model by model, of those that did not diverge."""
    pairs = zip(
        *(final_values(records, name, TYPES.index(kind)) for kind in (one, other)), strict=True
    )
    return mean_over_seeds([a - b for a, b in pairs if a is not None and b is not None])


def phase_claims(cells: Sequence[Record]) -> list[Claim]:
    """Small initial weights, and larger ones."""
    claims = []
    for i, records in by_setting(cells).items():
        small = [r for r in records if r["sigma"] <= 0.1 and fits(r)]
        large = [r for r in records if r["sigma"] >= 0.3 and fits(r)]
        for part, what in (
            (small, "holds for small initial weights, σ ≤ 0.1 (all seeds)"),
            (large, "breaks for larger ones, σ ≥ 0.3 (at most half of the seeds)"),
        ):
            if part:
                num = sum(map(follows, part))
                claims.append(
                    Claim(
                        statement=f"{SETTINGS[i].label}: the claim {what}, at every learning rate "
                        "where the model fits (test accuracy ≥ 0.95)",
                        paper='"small" initialisation, no number',
                        measured=f"{num} of {len(part)} models",
                        holds=num == len(part) if part is small else num <= len(part) / 2,
                        values={"models that follow": num, "models": len(part)},
                        decided_by="models that follow",
                        num_seeds=len({record["seed"] for record in part}),
                    )
                )
    return claims


def control_claims(by_head: Mapping[str, RecordsBySetting]) -> list[Claim]:
    """Whether it takes attention to choose as attention does."""
    claims = []
    for head, found in by_head.items():
        if head == "attention":
            continue
        parts, same, values = [], True, {}
        for i, records in found.items():
            mine = final_value(records, "ood_accuracy").mean
            theirs = final_value(by_head["attention"][i], "ood_accuracy").mean
            test = final_value(records, "test_accuracy").mean
            parts.append(f"{SETTINGS[i].label} {theirs:.2f} / {mine:.2f} ({test:.2f})")
            same &= test >= 1 - NEAR and abs(theirs - mine) <= 0.1
            numbers = {"attention": theirs, head: mine, f"{head}, test accuracy": test}
            values[SETTINGS[i].label] = {k: number_or_none(v) for k, v in numbers.items()}
        claims.append(
            Claim(
                statement=f"Without attention, the {head} learns all settings (mean test accuracy "
                f"≥ {1 - NEAR}) and uses the tokens that attention uses (accuracy with exchanged "
                "sparse tokens within 0.1)",
                paper="not tested",
                measured="attention / control (its test accuracy): " + "; ".join(parts),
                holds=same,
                values=values,
                decided_by="differences between attention and control, and test accuracies",
                num_seeds=min(map(len, found.values())),
            )
        )
    return claims


def check_claim(heads: Mapping[str, Sequence[Record]]) -> Claim:
    """The program's way to count flips against the library's."""
    flips = [
        record["flips"] for records in heads.values() for record in records if "flips" in record
    ]
    library, program, number = (sum(flip[k] for flip in flips) for k in range(3))
    return Claim(
        statement="The program's exact sensitivity counts the flips that jaxsens.sensitivity does",
        paper="–",
        measured=f"{program} and {library} flips of {number} edits of {len(flips)} trained models",
        holds=bool(flips) and all(theirs == mine for theirs, mine, _ in flips),
        values={"flips, program": program, "flips, library": library, "edits": number},
        decided_by="flips, program",
        num_seeds=len(flips),
    )
