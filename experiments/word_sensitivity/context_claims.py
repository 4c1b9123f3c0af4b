"""Claims G1 to G5 of the experiment `word_sensitivity`: what one changed word can undo.

All are of independent rows, at the smallest n and N of the grid. G1 and G2 speak of every point, so
that the one farthest out decides; G3 and G4 speak of the share of the seeds, which itself must be
large enough (ten of ten seeds leave a wide interval); G5 is decided by its interval.
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from jaxsens.core.intervals import bonferroni, mean_interval, paired_difference, student_interval
from jaxsens.reporting.results import Claim

from . import paper
from .claims import shown
from .context import OWN, TRAININGS
from .measuring import Row, of
from .paper import Within
from .texts import Gaussian

#: Points with a smaller (2 - γ)² say nothing about a ratio to it.
_ON_THE_AXIS = 1e-3


def context_claims(rows: Sequence[Row]) -> list[Claim]:
    """G1 to G5."""
    rows = of(list(rows), texts=Gaussian().name)
    n, num_train = min((row["n"], row["num_train"]) for row in rows)
    rows = of(rows, n=n, num_train=num_train)
    rf, raf = of(rows, map="rf"), of(rows, map="raf")
    loss = {name: of(raf, training=name, objective="loss") for name in TRAININGS}
    free = {name: of(raf, training=name, objective=OWN[name]) for name in TRAININGS}
    off_axis = [row for row in rf if paper.curve(row["gamma"]) > _ON_THE_AXIS]
    return [
        _every_point(
            "G1: RF obeys Err ≥ (2 − γ)² up to 1/√n, at every point",
            "Err ≥ (2 − γ)²(1 − o(1))",
            "Err over (2 − γ)²",
            [row | {"value": row["err"] / paper.curve(row["gamma"])} for row in off_axis],
            paper.RF_ERROR_RATIO,
        ),
        _exact_claim(rows),
        _every_point(
            "G2: one word cannot rotate the features of RF: F is near 1 at every point",
            "F = 1 − O(1/√n)",
            "F",
            [row | {"value": row["alignment"]} for row in rf],
            paper.RF_ALIGNMENT,
        ),
        _share_claim(
            f"G3: softmax attention reaches Err < {paper.SOLVED} with the objective loss",
            "Err of attention can be 0",
            {name: [row["err"] < paper.SOLVED for row in part] for name, part in loss.items()},
            lambda share: share >= paper.LEAST_SOLVED,
            f"at least {paper.LEAST_SOLVED:g}",
        ),
        _share_claim(
            "G4: with objectives that do not know the labels most points of softmax attention are "
            "below (2 − γ)²",
            "below the bound of RF",
            {name: [below_curve(row) for row in part] for name, part in free.items()},
            lambda share: share > paper.MAJORITY,
            f"more than {paper.MAJORITY:g}",
        ),
        _order_claim(rows),
    ]


def below_curve(row: Row) -> bool:
    """Whether Err is below (2 - γ)²."""
    return bool(row["err"] < paper.curve(row["gamma"]))


def _every_point(
    statement: str, theirs: str, what: str, points: Sequence[Row], within: Within
) -> Claim:
    """Whether the values of all points lie in the range; without points nothing holds."""
    if not points:
        return Claim(
            statement=statement,
            paper=theirs,
            measured="no point that could say so",
            holds=False,
            values={"points": 0},
            decided_by="points",
            num_seeds=0,
        )
    values = np.array([row["value"] for row in points])
    mean = student_interval(_by_seed(points, "value"))
    worst = min(points, key=lambda row: row["value"])
    return Claim(
        statement=statement,
        paper=theirs,
        measured=f"{what} at least {worst['value']:.3f} ({worst['training']}, "
        f"{worst['objective']}, seed {worst['seed']}) over {len(points)} points, mean "
        f"{mean.mean:.3f} with 95 % interval {mean.low:.3f} to {mean.high:.3f}; every point must "
        f"lie in {shown(within)}",
        holds=bool((values >= within[0]).all() and (values <= within[1]).all()),
        values={
            "smallest": values.min(),
            "largest": values.max(),
            "points": len(points),
            "mean": mean.mean,
            "interval of the mean": mean.ends,
        },
        decided_by="smallest",
        num_seeds=_num_seeds(points),
    )


def _exact_claim(rows: Sequence[Row]) -> Claim:
    worst = max(row["excess"] for row in rows)
    return Claim(
        statement="G1, exactly: |f(X(Δ), θ) − y| ≤ γ + |F − 1| |y − f(X, θ*)|, for every map",
        paper="follows from the closed forms",
        measured=f"broken by at most {max(worst, 0.0):.1g}, over {len(rows)} points",
        holds=worst <= paper.EXACT,
        values={"largest excess": worst, "points": len(rows)},
        decided_by="largest excess",
        num_seeds=_num_seeds(rows),
    )


def _share_claim(
    statement: str,
    theirs: str,
    happened: dict[str, list[bool]],
    enough: Callable[[float], bool],
    required: str,
) -> Claim:
    """Whether something happens in enough of the seeds, for both trainings."""
    found = {
        name: mean_interval(np.array(bits, float), (0.0, 1.0)) for name, bits in happened.items()
    }
    least = min(found, key=lambda name: found[name].mean)
    return Claim(
        statement=statement,
        paper=theirs,
        measured="; ".join(
            f"{name} {sum(happened[name])} of {len(happened[name])} seeds (95 % interval "
            f"{share.low:.2f} to {share.high:.2f})"
            for name, share in found.items()
        )
        + f"; required: {required}",
        holds=all(enough(share.mean) for share in found.values()),
        values={name: share.mean for name, share in found.items()},
        decided_by=least,
        interval=found[least].ends,
        num_seeds=len(happened[least]),
    )


def _order_claim(rows: Sequence[Row]) -> Claim:
    """G5: mean Err over all objectives and trainings, seed by seed."""
    names = ("rf", "relu-raf", "raf")
    parts = {name: of(list(rows), map=name) for name in names}
    # Texts on which ReLU attention is 0 have no point of it: their seeds are left out of all.
    seeds = set.intersection(*({row["seed"] for row in part} for part in parts.values()))
    by_map = {
        name: _by_seed([row for row in part if row["seed"] in seeds], "err")
        for name, part in parts.items()
    }
    level = bonferroni(0.95, 2)
    steps = {
        f"{larger} − {smaller}": paired_difference(by_map[larger], by_map[smaller], level=level)
        for larger, smaller in itertools.pairwise(names)
    }
    least = min(steps, key=lambda name: steps[name].low)
    means = {f"mean Err, {name}": float(values.mean()) for name, values in by_map.items()}
    return Claim(
        statement="G5: the mean error of ReLU attention is between those of RF and of softmax "
        "attention",
        paper="RF > ReLU-RAF > RAF",
        measured=", ".join(f"{name} {value:.3f}" for name, value in means.items())
        + "; "
        + "; ".join(
            f"{name} {step.mean:.3f}, interval {step.low:.3f} to {step.high:.3f}"
            for name, step in steps.items()
        ),
        holds=all(step.low > 0 for step in steps.values()),
        values=means | {name: step.mean for name, step in steps.items()},
        decided_by=least,
        interval=steps[least].ends,
        level=level,
        num_seeds=len(by_map["rf"]),
    )


def _by_seed(rows: Sequence[Row], name: str) -> np.ndarray:
    """The mean over the points of each seed."""
    seeds = sorted({row["seed"] for row in rows})
    return np.array([np.mean([r[name] for r in rows if r["seed"] == seed]) for seed in seeds])


def _num_seeds(rows: Sequence[Row]) -> int:
    return len({row["seed"] for row in rows})
