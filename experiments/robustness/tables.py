"""Tables of the experiment `robustness`."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool

from jaxsens import corruptions
from jaxsens.core.intervals import mean_interval
from jaxsens.reporting.results import Table

from .._common.claims import Estimates
from .._images.models import ModelSpec
from .._images.tables import training_note
from .config import Config
from .loading import CorruptedImages
from .measuring import RecognisedByModel


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
    specs: Sequence[ModelSpec], estimates: Estimates, recognised: RecognisedByModel, note: str
) -> Table:
    """Sensitivity beside clean accuracy and mean corruption error."""
    rows = []
    for spec in specs:
        estimate, (clean, *corrupted) = estimates[spec.name], recognised[spec.name]
        low, high = estimate.ci()
        per_image = 1 - np.mean(corrupted, axis=0)
        _, error_low, error_high = mean_interval(per_image, (0.0, 1.0))
        rows.append(
            (
                spec.label,
                f"{estimate.mean:.4f}",
                f"{low:.4f} – {high:.4f}",
                _accuracy(clean),
                f"{per_image.mean():.4f}",
                f"{error_low:.4f} – {error_high:.4f}",
            )
        )
    return Table(
        title="Sensitivity and mean corruption error",
        columns=(
            *("model", "sensitivity", "95 % interval", "clean accuracy"),
            *("mean corr. error", "95 % interval"),
        ),
        rows=tuple(rows),
        note=f"{note}.",
    )


def accuracy_table(
    names: Sequence[str], specs: Sequence[ModelSpec], recognised: RecognisedByModel, note: str
) -> Table:
    """Accuracy, with its interval, on the same images clean and with every corruption."""
    return Table(
        title="Accuracy on each corruption",
        columns=("corruption", *(spec.label for spec in specs)),
        rows=tuple(
            (name.replace("_", " "), *(_accuracy(recognised[spec.name][i]) for spec in specs))
            for i, name in enumerate(("clean", *names))
        ),
        note=f"In brackets 95 % (Wilson) intervals; {note}.",
    )


def _accuracy(found: Bool[np.ndarray, " n"]) -> str:
    mean, low, high = mean_interval(found.astype(float), (0.0, 1.0))
    return f"{mean:.3f} ({low:.3f} – {high:.3f})"
