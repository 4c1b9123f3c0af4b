"""Random weights: how sensitive is a transformer before it is trained (Section 5, H6)?

Exact average sensitivities of many random transformers, beside MLPs, LSTMs and random functions of
as many bits, balanced by a threshold at the median of the outputs. A threshold at 0, where they are
not balanced, is shown beside it, with what random functions of the same balance have.

There is no released code for it. Transformers are those that the other parts start from.
"""

import numpy as np

from jaxsens.core.intervals import Interval, independent_difference
from jaxsens.figures import grouped_bars
from jaxsens.reporting.cached import cached_stage
from jaxsens.reporting.results import Claim, Figure, Table
from jaxsens.reporting.run_folder import RunFolder

from ..._common.figures import saved_figure
from ..config import Config
from ..measuring import stage_key
from ..outcome import PartFindings, mean_over_seeds, text_of
from ..random_networks import (
    KINDS,
    Kind,
    expected_sensitivity,
    network,
    random_outputs,
    thresholded,
)

#: H6: a random transformer has less than this share of a random function's sensitivity.
LOW = 0.5

#: Bits and width.
Size = tuple[int, int]
#: "median" and "zero": "sensitivity" and "ones" of every network.
Drawn = dict[str, dict[str, np.ndarray]]


def run(config: Config, folder: RunFolder) -> PartFindings:
    """Draws networks of all kinds and sizes, and counts."""
    sizes = [(n, w) for n in config.random_init_bits for w in config.random_init_widths]
    drawn = {size: {kind: _drawn(config, folder, kind, *size) for kind in KINDS} for size in sizes}
    claims = [claim for size in sizes for claim in claims_of(size, drawn[size])]
    low = [claim for claim in claims if claim.decided_by == "share of a random function's"]
    return PartFindings(
        summary=f"Random transformers have {' and '.join(c.measured.split(':')[0] for c in low)}.",
        claims=tuple(claims),
        tables=(_table(drawn),),
        figures=(_figure(drawn, folder),),
        values={f"{n} bits, width {w}": drawn[n, w] for n, w in sizes},
    )


def _drawn(config: Config, folder: RunFolder, kind: Kind, n: int, width: int) -> Drawn:
    name = f"random-init/{kind}, {n} bits, width {width}"

    def draw() -> Drawn:
        outputs = random_outputs(
            network(kind, n, width, config.layers, config.heads),
            n,
            config.random_init_networks,
            tied=config.tied,
            key=stage_key(config.seed, name),
        )
        return {cut: thresholded(outputs, cut) for cut in ("median", "zero")}

    found = cached_stage(folder, name, draw)
    return {cut: {k: np.asarray(v) for k, v in found[cut].items()} for cut in found}


def claims_of(size: Size, drawn: dict[Kind, Drawn]) -> list[Claim]:
    """Whether transformers are less sensitive than random functions, MLPs and LSTMs."""
    n, width = size
    where = f"{n} bits, width {width}"
    mine = drawn["transformer"]["median"]["sensitivity"]
    of_random = mean_over_seeds(mine / (n / 2), (0.0, 2.0))
    claims = [
        Claim(
            statement=f"Random transformers of {where} have less than half of a random function's "
            "average sensitivity (H6)",
            paper="low sensitivity at random initialisation (no code released)",
            measured=f"{text_of(of_random, 2)} of n/2 at {where}: {mine.mean():.2f} of {n / 2:g}, "
            f"balanced by the median; rehearsed target: {LOW}",
            holds=of_random.high < LOW,
            values={
                "share of a random function's": of_random.mean,
                "average sensitivity": mine.mean(),
                "random function": n / 2,
            },
            decided_by="share of a random function's",
            interval=of_random.ends,
            num_seeds=len(mine),
        )
    ]
    for kind in ("MLP", "LSTM"):
        other = drawn[kind]["median"]["sensitivity"]
        difference = independent_difference(mean_over_seeds(other), mean_over_seeds(mine))
        claims.append(
            Claim(
                statement=f"Random transformers of {where} are less sensitive than random {kind}s",
                paper="–",
                measured=f"{mine.mean():.2f} against {other.mean():.2f}; difference "
                f"{text_of(difference, 2)}",
                holds=difference.low > 0,
                values={
                    "transformer": mine.mean(),
                    kind: other.mean(),
                    "difference": difference.mean,
                },
                decided_by="difference",
                interval=difference.ends,
                num_seeds=len(mine),
            )
        )
    return claims


def _table(drawn: dict[Size, dict[Kind, Drawn]]) -> Table:
    rows = []
    for (n, width), kinds in drawn.items():
        for kind, of in kinds.items():
            median, zero = of["median"], of["zero"]
            constant = np.isin(zero["ones"], (0.0, 1.0))
            rows.append(
                (
                    kind,
                    n,
                    None if kind == "random function" else width,
                    text_of(mean_over_seeds(median["sensitivity"]), 2),
                    float(np.abs(median["ones"] - 0.5).max()),
                    text_of(mean_over_seeds(zero["sensitivity"]), 2),
                    float(expected_sensitivity(zero["ones"], n).mean()),
                    float(constant.mean()),
                    len(constant),
                )
            )
    return Table(
        "random-init: average sensitivity of networks with random weights",
        (
            "network",
            "bits",
            "width",
            "as, threshold at the median (95 %)",
            "largest imbalance",
            "as, threshold at 0 (95 %)",
            "random functions of the same balance",
            "constant at 0",
            "networks",
        ),
        tuple(rows),
        note="All 2ⁿ inputs, exact counts. Imbalance is |share of ones − ½|. A threshold at 0 "
        "leaves functions unbalanced, and those have a low sensitivity trivially: the column "
        "beside it has the mean over all functions with as many ones.",
    )


def _figure(drawn: dict[Size, dict[Kind, Drawn]], folder: RunFolder) -> Figure:
    def bar(of: Drawn) -> Interval:
        return mean_over_seeds(of["median"]["sensitivity"], (0.0, np.inf))

    groups = [f"{n} bits,\nwidth {width}" for n, width in drawn]
    series: dict[str, list[Interval]] = {
        kind: [bar(kinds[kind]) for kinds in drawn.values()] for kind in KINDS
    }
    return saved_figure(
        grouped_bars(groups, series, ylabel="Average sensitivity"),
        folder,
        "random_init",
        "Average sensitivity of networks with random weights, balanced by a threshold at the "
        "median of their outputs, and of random functions: means over networks with 95 % "
        "intervals (Section 5 of the paper).",
    )
