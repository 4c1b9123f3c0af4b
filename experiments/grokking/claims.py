"""Claims and verdicts of the experiment `grokking`, from its raw curves."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from jaxsens.reporting.results import Claim

from .leads import ALARM, GENERALISED, SHARES, MeanOverRuns, largest_rise
from .outcome import Jump, Outcome, beyond_accuracy, early_alarms, is_progress_measure

#: Training accuracies from which on a hump is looked for.
HUMP_FROM = (1.0, 0.99)


def claims_of(outcome: Outcome) -> list[Claim]:
    """All that is claimed of a task."""
    claims = grokking_claims(outcome)
    if outcome.training.name == "addition":
        claims += [mirror_claim(outcome), *hump_claims(outcome)]
    return claims + (lead_claims(outcome) if outcome.jumps else [])


def grokking_claims(outcome: Outcome) -> list[Claim]:
    """Whether the runs generalised late, and the controls not at all."""
    jumps, total = outcome.jumps, len(outcome.runs)
    is_addition = outcome.title.startswith("Addition")
    # Two classes are guessed right half of the time, so parity may be somewhat above that.
    late = [jump for jump in jumps if jump.plateau < (0.5 if is_addition else 0.6)]
    finals = [run.final for run in outcome.runs]
    claims = [
        Claim(
            statement=f"{outcome.title}: test accuracy jumps above {GENERALISED} long after the "
            "training set is memorised",
            paper="yes, for 3 of 3 seeds" if is_addition else "–",
            measured=f"{len(late)} of {total} runs; memorised at {_span(jumps, 'memorised')}, test "
            f"accuracy then {_span(jumps, 'plateau', 3)}; jump at {_span(jumps, 'epoch')}; final "
            f"{min(finals):.3f} to {max(finals):.3f}",
            holds=len(late) == total
            and all(jump.epoch >= 2 * max(jump.memorised, 1) for jump in late),
            values={
                "runs that jump late": len(late),
                "runs": total,
                "epochs of memorisation": [jump.memorised for jump in jumps],
                "epochs of the jump": [jump.epoch for jump in jumps],
                "final test accuracies": finals,
            },
            decided_by="runs that jump late",
            num_seeds=total,
        )
    ]
    for arm in outcome.training.arms[1:]:
        final = outcome.curves[arm.name]["test_accuracy"][:, -1]
        claims.append(
            Claim(
                statement=f"{outcome.title}: control, {arm.label}, does not generalise",
                paper="–",
                measured=f"final test accuracy {final.min():.3f} to {final.max():.3f}",
                holds=bool((final < GENERALISED).all()),
                values={"final test accuracies": final, "largest": final.max()},
                decided_by="largest",
                num_seeds=len(final),
            )
        )
    return claims


def mirror_claim(outcome: Outcome) -> Claim:
    """What the plateau of test accuracy is made of."""
    names = ("test_accuracy", "mirror_share", "mirrored_accuracy", "new_accuracy")
    middle = {
        name: np.array([part[len(part) // 2] for part in outcome.from_accuracy(name, 1.0)])
        for name in names
    }
    spans = {name: _numbers(values, 3) for name, values in middle.items()}
    return Claim(
        statement=f"{outcome.title}: on the plateau only mirrored pairs are right, (b, a) of a "
        "training pair (a, b)",
        paper="–",
        measured=f"half way between memorised and jump: test accuracy {spans['test_accuracy']}, "
        f"share of mirrored pairs {spans['mirror_share']}; accuracy on these "
        f"{spans['mirrored_accuracy']}, on the others {spans['new_accuracy']}",
        holds=len(outcome.jumps) > 0
        and bool((middle["mirrored_accuracy"] > 0.9).all())
        and bool((middle["new_accuracy"] < 0.1).all()),
        values={
            "test accuracy": middle["test_accuracy"],
            "share of mirrored pairs": middle["mirror_share"],
            "accuracy on mirrored pairs": middle["mirrored_accuracy"],
            "accuracy on other pairs": middle["new_accuracy"],
        },
        decided_by="accuracy on mirrored pairs, accuracy on other pairs",
        num_seeds=len(outcome.jumps),
    )


def hump_claims(outcome: Outcome) -> list[Claim]:
    """Whether the rise of sensitivity on the plateau depends on the unit of the noise.

    The rise is looked for from memorised on and, beside it, from a training accuracy of 0.99 on.
    The second was added after the first quick run, in which a last pair of one seed was learned
    only after the rise.
    """
    return [
        claim
        for accuracy in HUMP_FROM
        for claim in _hump_claims(outcome, accuracy)
        if outcome.jumps
    ]


def _hump_claims(outcome: Outcome, accuracy: float) -> list[Claim]:
    rises = {
        name: [largest_rise(part) for part in outcome.from_accuracy(name, accuracy)]
        for name in ("authors", "authors_relative")
    }
    absolute, relative = (MeanOverRuns.of(values) for values in rises.values())
    pairs = zip(rises["authors"], rises["authors_relative"], strict=True)
    difference = MeanOverRuns.of([a - r for a, r in pairs])
    if absolute is None or relative is None or difference is None:
        return []
    window = f"from training accuracy {accuracy:g} to the jump"
    return [
        Claim(
            statement=f"Addition: the authors' sensitivity has a hump {window}",
            paper="3.1 % → 8.6 % (seed 42): a rise of 0.64",
            measured=f"largest rise over largest value {absolute.text(2)}; a hump is more than 0.1",
            holds=absolute.low > 0.1,
            values={"rise, absolute noise": absolute.mean},
            decided_by="rise, absolute noise",
            interval=absolute.ends,
            num_seeds=absolute.num,
        ),
        Claim(
            statement="Addition: the hump is an artefact of the noise's unit: smaller with noise "
            f"relative to the embedding, and there below 0.1, {window}",
            paper="–",
            measured=f"{absolute.text(2)} with absolute noise, {relative.text(2)} with relative; "
            f"difference {difference.text(2)}",
            holds=difference.positive and relative.high < 0.1,
            values={
                "rise, absolute noise": absolute.mean,
                "rise, relative noise": relative.mean,
                "difference": difference.mean,
            },
            decided_by="difference",
            interval=difference.ends,
            num_seeds=difference.num,
        ),
    ]


def hump_verdict(outcome: Outcome) -> str:
    """The plain answer about the hump, for the summary."""
    answers = {True: "holds", False: "does not hold"}
    parts = [f"{c.statement} ({c.measured}): {answers[c.holds]}." for c in hump_claims(outcome)]
    return " ".join(parts)


def lead_claims(outcome: Outcome) -> list[Claim]:
    """Leads and alarms of every sensitivity, and of the rivals for comparison."""
    claims = []
    for measure in outcome.measures:
        if measure.name == "test_accuracy":
            continue
        lead = MeanOverRuns.of(outcome.leads(measure.name, "10 %"))
        if measure.sensitivity:
            claims.append(
                Claim(
                    statement=f"{outcome.title}: {measure.label}: covers 10 % of its way before "
                    "the jump of test accuracy",
                    paper="falls steadily for about 7,000 epochs before it"
                    if measure.name == "authors"
                    else "–",
                    measured=f"lead {lead.text()} epochs" if lead else "it never does",
                    holds=lead is not None and lead.positive,
                    **_deciding("lead in epochs", lead, outcome),
                )
            )
        alarm = MeanOverRuns.of(outcome.leads(measure.name, ALARM))
        claims.append(
            Claim(
                statement=f"{outcome.title}: {measure.label}: a progress measure, beyond every "
                "control before the jump",
                paper="yes, without controls" if measure.name == "authors" else "–",
                measured=_alarms(outcome, measure.name),
                holds=is_progress_measure(outcome, measure.name),
                **_deciding(
                    "lead of the alarm in epochs",
                    alarm,
                    outcome,
                    {"runs with an alarm before the jump": early_alarms(outcome, measure.name)},
                ),
            )
        )
    return claims


def _deciding(
    name: str,
    lead: MeanOverRuns | None,
    outcome: Outcome,
    others: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Any]:
    """The fields of a claim that a lead decides; a lead that there is not is None."""
    return {
        "values": {name: None if lead is None else lead.mean, **others},
        "decided_by": name,
        "interval": None if lead is None else lead.ends,
        "num_seeds": len(outcome.jumps),
    }


def _alarms(outcome: Outcome, measure: str) -> str:
    parts = []
    for column, title in outcome.columns.items():
        if column not in SHARES:
            lead = MeanOverRuns.of(outcome.leads(measure, column))
            early = early_alarms(outcome, measure, column)
            text = f", lead {lead.text()} epochs" if lead else ""
            parts.append(f"{title}: before the jump in {early} of {len(outcome.jumps)} runs{text}")
    against = beyond_accuracy(outcome, measure)
    if against is not None:
        parts.append(f"{against.text()} epochs before the alarm of test accuracy itself")
    return "; ".join(parts)


def verdict(outcome: Outcome) -> str:
    """The plain answer, for the summary."""
    if not outcome.jumps:
        return f"{outcome.title}: no run generalised, so nothing can be said about leads."
    total, parts = len(outcome.jumps), []
    for m in outcome.measures:
        if m.sensitivity:
            against = beyond_accuracy(outcome, m.name)
            earlier = f", {against.text()} epochs before test accuracy's" if against else ""
            parts.append(
                f"{m.label}: {'yes' if is_progress_measure(outcome, m.name) else 'no'} (alarm "
                f"before the jump in {early_alarms(outcome, m.name)} of {total} runs{earlier})"
            )
    rivals = [
        m.label
        for m in outcome.measures
        if not m.sensitivity and m.name != "test_accuracy" and is_progress_measure(outcome, m.name)
    ]
    return (
        f"{outcome.title}: is sensitivity a progress measure, that is, does it, before the jump, "
        f"go beyond all that it does in runs that do not generalise? {'; '.join(parts)}. Of the "
        f"rivals these do: {', '.join(rivals) or 'none'}."
    )


def _span(jumps: Sequence[Jump], name: str, digits: int = 0) -> str:
    return _numbers(np.array([getattr(jump, name) for jump in jumps], float), digits)


def _numbers(found: np.ndarray, digits: int) -> str:
    if not len(found):
        return "–"
    low, high = f"{found.min():.{digits}f}", f"{found.max():.{digits}f}"
    return low if low == high else f"{low} to {high}"
