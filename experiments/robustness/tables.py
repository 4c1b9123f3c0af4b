"""Tables of the experiment `robustness`."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float

from jaxsens import corruptions
from jaxsens.core.intervals import Interval, mean_interval
from jaxsens.reporting.results import Table

from .._common.claims import SeedEstimates, mean_over_seeds
from .._common.figures import final_interval, over_text
from .._images.models import ModelSpec
from .._images.tables import training_note
from .config import Config
from .loading import CorruptedImages
from .measuring import RecognisedBySeed


def corruption_note(config: Config, loaded: CorruptedImages) -> str:
    """What the tables show: which corrupted images, and which models."""
    made = [test for test in loaded.tests.values() if test.source == corruptions.REGENERATED]
    parts = (
        f"{next(iter(loaded.tests.values())).source}, severity {config.severity}",
        f"the same n = {len(loaded.clean[1])} test images clean and for each corruption",
        *(test.detail for test in made if test.detail),
        training_note(config, loaded.images),
    )
    return "; ".join(parts)


def error_table(
    specs: Sequence[ModelSpec], estimates: SeedEstimates, recognised: RecognisedBySeed, note: str
) -> Table:
    """Sensitivity beside clean accuracy and mean corruption error; of several seeds the means."""
    num_seeds = len(recognised[specs[0].name])
    interval = "95 % interval" + over_text(num_seeds)
    rows = []
    for spec in specs:
        sensitivity = final_interval(estimates[spec.name])
        found = recognised[spec.name]
        error = _mean([1 - each[1:].mean(axis=0) for each in found])
        errors = [float(1 - each[1:].mean()) for each in found]
        rows.append(
            (
                spec.label,
                f"{sensitivity.mean:.4f}",
                f"{sensitivity.low:.4f} – {sensitivity.high:.4f}",
                _accuracy([each[0] for each in found]),
                f"{error.mean:.4f}",
                f"{error.low:.4f} – {error.high:.4f}",
                *([f"{min(errors):.4f} – {max(errors):.4f}"] if num_seeds > 1 else []),
            )
        )
    return Table(
        title=f"Sensitivity and mean corruption error{_of_seeds(num_seeds)}",
        columns=(
            *("model", "sensitivity", interval, "clean accuracy"),
            *("mean corr. error", interval),
            *(["range"] if num_seeds > 1 else []),
        ),
        rows=tuple(rows),
        note=f"{note}.",
    )


def accuracy_table(
    names: Sequence[str], specs: Sequence[ModelSpec], recognised: RecognisedBySeed, note: str
) -> Table:
    """Accuracy, with its interval, on the same images clean and with every corruption."""
    num_seeds = len(recognised[specs[0].name])
    brackets = "intervals over seeds" if num_seeds > 1 else "(Wilson) intervals"
    return Table(
        title=f"Accuracy on each corruption{_of_seeds(num_seeds)}",
        columns=("corruption", *(spec.label for spec in specs)),
        rows=tuple(
            (
                name.replace("_", " "),
                *(_accuracy([each[i] for each in recognised[spec.name]]) for spec in specs),
            )
            for i, name in enumerate(("clean", *names))
        ),
        note=f"In brackets 95 % {brackets}; {note}.",
    )


def severities_table(
    config: Config,
    specs: Sequence[ModelSpec],
    by_severity: Mapping[int, RecognisedBySeed],
    note: str,
) -> Table:
    """Mean corruption error at every severity.

    Args:
      config: with the main severity.
      specs: the models.
      by_severity: which images are recognised, also at the main severity.
      note: what the images are.
    """
    num_seeds = len(by_severity[config.severity][specs[0].name])
    over = "over seeds" if num_seeds > 1 else "clustered by image"
    rows = []
    for spec in specs:
        errors = [
            _mean([1 - each[1:].mean(axis=0) for each in recognised[spec.name]])
            for recognised in by_severity.values()
        ]
        cells = (f"{each.mean:.4f} ({each.low:.4f} – {each.high:.4f})" for each in errors)
        rows.append((spec.label, *cells))
    return Table(
        title=f"Mean corruption error at every severity{_of_seeds(num_seeds)}",
        columns=("model", *(f"severity {severity}" for severity in by_severity)),
        rows=tuple(rows),
        note=f"In brackets 95 % intervals {over}; {note}.",
    )


def _accuracy(found: Sequence[Bool[np.ndarray, " n"]]) -> str:
    mean, low, high = _mean([each.astype(float) for each in found])
    return f"{mean:.3f} ({low:.3f} – {high:.3f})"


def _mean(by_image: Sequence[Float[np.ndarray, " n"]]) -> Interval:
    """Of one training over images, of several over seeds."""
    if len(by_image) == 1:
        return mean_interval(by_image[0], (0.0, 1.0))
    return mean_over_seeds([float(values.mean()) for values in by_image])


def _of_seeds(num_seeds: int) -> str:
    return f", {num_seeds} seeds" if num_seeds > 1 else ""
