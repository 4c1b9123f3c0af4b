"""Generalisation: what transformers make of functions that are known in part (Figs 4, 15; H4).

A learned extension should be less sensitive than a random one of the same labels, the less the
fewer labels there are, and a transformer trained on its whole table less sharp.

Intervals are over random functions, each with the mean of its fits: fits of one function share its
labels. Shares that decide were fixed before the runs.
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from scipy.stats import spearmanr

from jaxsens.reporting.results import Cell, Claim, Table
from jaxsens.reporting.run_folder import RunFolder

from ..._common.claims import number_or_none
from ..config import Config
from ..outcome import PartFindings, claim_ends, mean_over_seeds, text_of
from ..partial_functions import (
    KINDS,
    Extension,
    Kind,
    Retrained,
    learned_extensions,
    over_functions,
    profile,
    retrained,
    sensitivity,
)
from .generalisation_figures import figures_of

#: H4, sensitivity: at least this share of the fits is ordered as claimed.
LEAST_ORDERED = 0.9
#: H4, sharpness: at least this share of at least so many pairs is.
LEAST_LESS_SHARP, LEAST_PAIRS = 0.8, 8
#: A rank correlation needs some models.
_LEAST_MODELS = 3

#: Sharpness of a learned and of a random extension of the same labels, both trained to the end.
Pair = tuple[Retrained, Retrained]


def run(config: Config, folder: RunFolder) -> PartFindings:
    """Trains, counts, retrains, measures, draws."""
    extensions = learned_extensions(config, folder)
    models = retrained(config, folder, extensions)
    fits = [extension for extension in extensions if extension.fits and extension.open]
    claims = (
        less_sensitive(fits),
        grows_with_size(fits),
        less_sharp(strict_pairs(models), num_pairs(models), config.sharpness),
        ordered_with_sensitivity(models, config.sharpness),
    )
    means = {k: np.mean([sensitivity(e.table(k)) for e in fits]) if fits else None for k in KINDS}
    known = sum(extension.fits for extension in extensions)
    learnt = sum(model.learnt for model in models)
    shown = {kind: "–" if mean is None else f"{mean:.2f}" for kind, mean in means.items()}
    return PartFindings(
        summary=f"Learned extensions of random functions of {config.generalisation_bits} bits have "
        f"average sensitivity {shown['learned']}, random ones of the same labels "
        f"{shown['random']} ({known} of {len(extensions)} fit their labels; {learnt} of "
        f"{len(models)} that were trained on whole tables learnt them).",
        claims=claims,
        tables=(_table(config, extensions, models),),
        figures=figures_of(extensions, models, config.sharpness, folder),
        values={
            "extensions": [_extension_values(each) for each in extensions],
            "retrained": [_retrained_values(each) for each in models],
        },
    )


def less_sensitive(fits: Sequence[Extension]) -> Claim:
    """Whether learned extensions are less sensitive than random ones."""
    differences = [sensitivity(e.partial.random) - sensitivity(e.learned) for e in fits]
    mean = over_functions(fits, differences)
    ordered = [difference > 0 for difference in differences]
    share = float(np.mean(ordered)) if ordered else None
    return Claim(
        statement="Learned extensions of random functions are less sensitive than random "
        "extensions of the same labels (H4)",
        paper="as(learned) below as(random), which is 5.0 for 10 bits (Fig. 4)",
        measured=f"random minus learned {text_of(mean, 2)}, over functions; less in "
        f"{sum(ordered)} of {len(ordered)} fits; required: {LEAST_ORDERED:.0%}",
        holds=share is not None and share >= LEAST_ORDERED and mean.low > 0,
        values={
            "random minus learned": number_or_none(mean.mean),
            "share of fits": share,
            "fits": len(fits),
        },
        decided_by="random minus learned",
        interval=claim_ends(mean),
        num_seeds=_num_functions(fits),
    )


def grows_with_size(fits: Sequence[Extension]) -> Claim:
    """Whether more labels make learned extensions more sensitive."""
    chains: dict[tuple[int, int], list[Extension]] = {}
    for extension in sorted(fits, key=lambda e: e.partial.size):
        chains.setdefault((extension.partial.function, extension.partial.subset), []).append(
            extension
        )
    long = [chain for chain in chains.values() if len(chain) > 1]
    steps = [
        sensitivity(after.learned) - sensitivity(before.learned)
        for chain in long
        for before, after in itertools.pairwise(chain)
    ]
    firsts = [chain[0] for chain in long]
    rises = [sensitivity(chain[-1].learned) - sensitivity(chain[0].learned) for chain in long]
    mean = over_functions(firsts, rises)
    ordered = [step > 0 for step in steps]
    share = float(np.mean(ordered)) if ordered else None
    return Claim(
        statement="The more labels, the more sensitive is the learned extension (H4)",
        paper="increasing in the number of training inputs (Fig. 4)",
        measured=f"from the fewest labels to the most {text_of(mean, 2)}, over functions; more in "
        f"{sum(ordered)} of {len(ordered)} steps to the next size; required: {LEAST_ORDERED:.0%}",
        holds=share is not None and share >= LEAST_ORDERED and mean.low > 0,
        values={"rise": number_or_none(mean.mean), "share of steps": share},
        decided_by="rise",
        interval=claim_ends(mean),
        num_seeds=_num_functions(firsts),
    )


def less_sharp(pairs: Sequence[Pair], num: int, kind: str) -> Claim:
    """Whether what was trained on learned extensions is less sharp than on random ones.

    Args:
      pairs: those of which both learnt their tables.
      num: of all pairs.
      kind: of sharpness.
    """
    differences = [random.sharpness(kind) - learned.sharpness(kind) for learned, random in pairs]
    extensions = [learned.extension for learned, _ in pairs]
    mean = over_functions(extensions, differences)
    ordered = [difference > 0 for difference in differences]
    share = float(np.mean(ordered)) if ordered else None
    enough = len(pairs) >= LEAST_PAIRS
    return Claim(
        statement="Transformers trained on learned extensions are less sharp than on random "
        "extensions of the same labels (H4)",
        paper="lower sharpness (Fig. 4)",
        measured=f"random minus learned {text_of(mean)}, over functions; less in {sum(ordered)} of "
        f"{len(ordered)} pairs of which both learnt, of {num} pairs; required: "
        f"{LEAST_LESS_SHARP:.0%} of at least {LEAST_PAIRS}",
        holds=share is not None and enough and share >= LEAST_LESS_SHARP and mean.low > 0,
        values={
            "random minus learned": number_or_none(mean.mean),
            "share of pairs": share,
            "pairs of which both learnt": len(pairs),
            "pairs": num,
        },
        decided_by="random minus learned",
        interval=claim_ends(mean),
        num_seeds=_num_functions(extensions),
    )


def ordered_with_sensitivity(models: Sequence[Retrained], kind: str) -> Claim:
    """Whether more sensitive tables make sharper transformers, within each random function."""
    by_function: dict[int, list[Retrained]] = {}
    for model in models:
        if model.learnt:
            by_function.setdefault(model.extension.partial.function, []).append(model)
    found = [
        rank_correlation([m.sensitivity for m in of], [m.sharpness(kind) for m in of])
        for of in by_function.values()
    ]
    known = [value for value in found if value is not None]
    mean = mean_over_seeds(known, (-1.0, 1.0))
    return Claim(
        statement="Sharpness is ordered as the sensitivity of the table that was learnt (H4)",
        paper="ordered with sensitivity (Fig. 4)",
        measured=f"rank correlation within a function {text_of(mean, 2)}, over {len(known)} "
        f"functions with at least {_LEAST_MODELS} transformers that learnt",
        holds=bool(known) and mean.low > 0,
        values={"rank correlation": number_or_none(mean.mean), "of each function": known},
        decided_by="rank correlation",
        interval=claim_ends(mean),
        num_seeds=len(known),
    )


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Spearman's; None if there are too few values, or all of one kind are equal.

    >>> rank_correlation([1.0, 2.0, 3.0], [0.1, 0.4, 0.9])
    1.0
    """
    if len(x) < _LEAST_MODELS or len({*x}) < 2 or len({*y}) < 2:
        return None
    return float(spearmanr(x, y).statistic)


def strict_pairs(models: Sequence[Retrained]) -> list[Pair]:
    """Transformers of the same labels and first weights, of which both learnt their tables."""
    return [(a, b) for a, b in _pairs(models) if a.learnt and b.learnt]


def num_pairs(models: Sequence[Retrained]) -> int:
    """How many there are, whether they learnt or not."""
    return len(_pairs(models))


def _pairs(models: Sequence[Retrained]) -> list[Pair]:
    random = {(id(m.extension), m.seed): m for m in models if m.kind == "random"}
    return [
        (model, random[id(model.extension), model.seed])
        for model in models
        if model.kind == "learned" and (id(model.extension), model.seed) in random
    ]


def _num_functions(extensions: Sequence[Extension]) -> int:
    return len({extension.partial.function for extension in extensions})


def _table(config: Config, extensions: Sequence[Extension], models: Sequence[Retrained]) -> Table:
    rows = []
    for size in sorted(config.generalisation_sizes):
        tried = [extension for extension in extensions if extension.partial.size == size]
        fits = [extension for extension in tried if extension.fits]
        others = [extension for extension in fits if extension.open]
        accuracy = over_functions(others, [extension.other_accuracy for extension in others])

        def mean_of(value: Callable[[Extension], float], of: list[Extension] = fits) -> str:
            return text_of(over_functions(of, [value(extension) for extension in of]), 2)

        rows.append(
            (
                size,
                f"{len(fits)} of {len(tried)}",
                text_of(accuracy, 2),
                mean_of(lambda e: sensitivity(e.learned)),
                mean_of(lambda e: sensitivity(e.partial.random)),
                mean_of(lambda e: sensitivity(e.partial.target)),
                *(cell for kind in KINDS for cell in _sharpness_cells(models, size, kind, config)),
            )
        )
    return Table(
        f"generalisation: random functions of {config.generalisation_bits} bits",
        (
            "labels",
            "fit them",
            "accuracy elsewhere",
            "as, learned",
            "as, random extension",
            "as, target",
            "retrained on learned: learnt",
            "sharpness of these",
            "retrained on random: learnt",
            "sharpness of these ",
        ),
        tuple(rows),
        note="Means over random functions with 95 % intervals, of fits alone; a transformer learnt "
        "a whole table if its loss ended below 1e-3. Accuracy elsewhere is chance, as it must be.",
    )


def _sharpness_cells(
    models: Sequence[Retrained], size: int, kind: Kind, config: Config
) -> tuple[Cell, Cell]:
    mine = [m for m in models if m.kind == kind and m.extension.partial.size == size]
    learnt = [m for m in mine if m.learnt]
    values = [m.sharpness(config.sharpness) for m in learnt]
    mean = over_functions([m.extension for m in learnt], values)
    return f"{len(learnt)} of {len(mine)}", text_of(mean)


def _extension_values(extension: Extension) -> dict[str, object]:
    partial = extension.partial
    tables = {"learned": extension.learned, "random": partial.random, "target": partial.target}
    return {
        "function": partial.function,
        "subset": partial.subset,
        "labels": partial.size,
        "fits": extension.fits,
        "sensitivity": {name: sensitivity(table) for name, table in tables.items()},
        "weight by degree": {name: profile(table) for name, table in tables.items()},
    }


def _retrained_values(model: Retrained) -> dict[str, object]:
    partial = model.extension.partial
    sharp = {kind: model.sharpness(kind) for kind in ("definition", "released")}
    return {
        "function": partial.function,
        "subset": partial.subset,
        "labels": partial.size,
        "extension": model.kind,
        "seed": model.seed,
        "learnt": model.learnt,
        "loss": model.record["loss"],
        "sensitivity": model.sensitivity,
        "sharpness": {kind: number_or_none(value) for kind, value in sharp.items()},
    }
