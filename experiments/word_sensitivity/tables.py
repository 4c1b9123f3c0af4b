"""Tables of the experiment `word_sensitivity`, from the numbers that it found."""

from collections.abc import Sequence

import numpy as np

from jaxsens.core.intervals import Interval, student_interval
from jaxsens.reporting.results import Cell, Table

from . import paper
from .claims import slope, stuck_shares
from .config import Config
from .context_claims import below_curve
from .measuring import Row, best, of, random_means
from .texts import Gaussian


def shown(found: Interval, digits: int = 3) -> str:
    """The estimate ± the longer side of its interval."""
    return f"{found.mean:.{digits}f} ± {found.longer_side:.{digits}f}"


def curves_of(rows: Sequence[Row], *names: str) -> list[list[Row]]:
    """Rows that agree in these fields, by n."""
    found: dict[tuple, list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(found.values())


def grid_table(config: Config, rows: Sequence[Row]) -> Table:
    """S of the first word at every cell and its slope; the mean of random moves under it."""
    body: list[tuple[Cell, ...]] = []
    measures = {"": best, ", random moves": random_means}
    for curve in curves_of(rows, "texts", "map", "d"):
        first, by_n = curve[0], {row["n"]: row for row in curve}
        vanishing = sum(row["num_vanishing"] for row in curve)
        for suffix, measure in measures.items():
            cells: list[Cell] = []
            for n in config.n:
                row = by_n.get(n)
                cells.append(None if row is None else shown(student_interval(measure(row))))
            trend = shown(slope(curve, measure), 2) if len(curve) > 1 else None
            label = first["label"] + suffix
            body.append((first["texts"], label, first["d"], *cells, trend, vanishing))
    return Table(
        title="Worst relative change of the features by one word, the first",
        columns=(
            "texts",
            "map",
            "d",
            *(f"n = {n}" for n in config.n),
            "slope in log–log",
            "φ(X) = 0",
        ),
        rows=tuple(body),
        note=f"Mean of {config.num_seeds} texts and random weights with 95 % intervals; best of "
        f"{config.num_starts} starts × {config.num_steps} steps, a lower bound of the supremum "
        "over ‖Δ‖ ≤ √d. Random moves: the mean over the sphere ‖Δ‖ = √d. RF and DRF see only the "
        "norms of words, so other texts would change "
        f"nothing. A dash: D = nd is above {config.dense_limit}, where layers of D × D weights "
        "have no room, or there are too few texts of n words. φ(X) = 0: texts that are left out, "
        "because all logits of ReLU attention are negative, as where words share a direction.",
    )


def random_table(rows: Sequence[Row]) -> Table:
    """The worst move beside random ones."""
    body: list[tuple[Cell, ...]] = []
    for curve in curves_of(rows, "texts", "map", "d"):
        for row in (curve[0], *curve[1:][-1:]):
            worst, mean = best(row), random_means(row)
            ratio = student_interval(worst / mean)
            body.append(
                (
                    *(row["texts"], row["label"], row["d"], row["n"], float(worst.mean())),
                    *(float(mean.mean()), float(np.mean(row["random_max"])), shown(ratio, 2)),
                )
            )
    return Table(
        title="The worst move of the first word beside random moves of the same length",
        columns=(
            *("texts", "map", "d", "n", "worst", "random, mean", "random, largest"),
            "worst over random mean",
        ),
        rows=tuple(body),
        note="Smallest and largest n. Random moves are uniform on the sphere ‖Δ‖ = √d: the average "
        "case that the other experiments measure, in this metric.",
    )


def all_words_table(rows: Sequence[Row]) -> Table:
    """The supremum over all words beside that over the first."""
    body: list[tuple[Cell, ...]] = []
    for row in rows:
        words, random = np.array(row["words"]), np.array(row["random_means"])
        ratio = student_interval(words.max(axis=1) / words[:, 0])
        body.append(
            (
                *(row["label"], row["d"], row["n"], float(words[:, 0].mean())),
                *(shown(student_interval(words.max(axis=1))), shown(ratio)),
                shown(student_interval(random.mean(axis=1))),
            )
        )
    return Table(
        title="Worst word of all, as the definition has it, and the first word alone",
        columns=("map", "d", "n", "first word", "worst word", "ratio", "random move, mean"),
        rows=tuple(body),
        note="Independent rows, the same texts and weights for both. The authors' code moves the "
        "first word only. Random moves have the same length; their mean is over all words.",
    )


def stuck_table(config: Config, rows: Sequence[Row]) -> Table:
    """How often a single start misses what others find."""
    body: list[tuple[Cell, ...]] = []
    for row in rows:
        starts, released = np.array(row["starts"]), np.array(row["released"])
        random, theirs = stuck_shares(row)
        body.append(
            (
                *(row["texts"], row["label"], row["d"]),
                *(shown(student_interval(starts.max(axis=1))), f"{random:.0%}"),
                *(shown(student_interval(released)), f"{theirs:.0%}"),
                float((released / starts.max(axis=1)).min()),
                float(random_means(row).mean()),
            )
        )
    return Table(
        title=f"Starts that are stuck, n = {config.stuck_n}",
        columns=(
            *("texts", "map", "d", f"best of {config.num_starts}", "stuck starts"),
            *("authors' ascent", "stuck", "its smallest share of the best"),
            "random move, mean",
        ),
        rows=tuple(body),
        note=f"{config.stuck_seeds} texts each, or all that are long enough. Stuck: below "
        f"{paper.STUCK:.0%} of the best that was found. The authors' ascent has one start near the "
        "clean word, a fixed learning rate "
        f"of {paper.RELEASED_RATE:g} and {paper.RELEASED_STEPS}·n steps; its ball is centred on "
        "the clean word here. A mean over single starts mixes both modes.",
    )


def context_table(rows: Sequence[Row]) -> Table:
    """γ, Err and F of every map, training and objective."""
    body: list[tuple[Cell, ...]] = []
    names = ("texts", "d", "n", "num_train", "label", "training", "objective")
    for points in curves_of(rows, *names):
        values = [
            student_interval(np.array([row[name] for row in points]))
            for name in ("gamma", "err", "alignment")
        ]
        below = sum(map(below_curve, points))
        place = tuple(points[0][name] for name in names)
        body.append((*place, *map(shown, values), f"{below} of {len(points)}"))
    return Table(
        title="Context modification",
        columns=(
            *("texts", "d", "n", "N", "map", "training", "objective"),
            *("γ", "Err", "F", "below (2 − γ)²"),
        ),
        rows=tuple(body),
        note="Means over seeds with 95 % intervals. Each seed has its own texts and weights; maps "
        "share the texts. A seed with a text on which all features of ReLU attention are 0 is left "
        "out for that map: the last column counts the seeds that are there.",
    )


def summary(rows: Sequence[Row]) -> str:
    """The main outcome in words."""
    mine = of(list(rows), texts=Gaussian().name)
    d, n = max(row["d"] for row in mine), max(row["n"] for row in mine)
    last = {row["label"]: float(best(row).mean()) for row in of(mine, d=d, n=n)}
    return (
        f"Moving one of {n} words (d = {d}) by its own length changes the features by, at worst, "
        + ", ".join(f"{value:.3f} of their norm for {label}" for label, value in last.items())
        + "."
    )
