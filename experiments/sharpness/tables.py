"""Tables of the experiment `sharpness`."""

from collections.abc import Sequence

from jaxsens import SharpnessEstimate
from jaxsens.reporting.results import Table

from .._images.loading import Images
from .._images.models import ModelSpec
from .._images.tables import training_note
from .config import Config
from .figures import change_interval
from .measuring import SharpnessBySeed
from .paper import KINDS, TABLE_2, PaperSharpness


def sharpness_table(
    config: Config,
    images: Images,
    specs: Sequence[ModelSpec],
    sharpness: SharpnessBySeed,
    how: str,
) -> Table:
    """Every kind of change of every model, beside Table 2; of several seeds the mean and more."""
    num_seeds = len(sharpness[specs[0].name])
    rows = []
    for spec in specs:
        found, paper = sharpness[spec.name], PaperSharpness()
        if config.dataset == "cifar10":
            paper = TABLE_2.get(spec.name, paper)
        l1, flips, squared, loss = (_cell(found, kind) for kind in KINDS)
        rows.append((spec.label, paper.l1, l1, paper.flips, flips, squared, loss))
    if num_seeds > 1:
        title = f"Sharpness after {config.epochs} epochs, {num_seeds} seeds: {how}"
        meaning = "mean (95 % interval over seeds; smallest to largest)"
    else:
        title = f"Sharpness after {config.epochs} epochs: {how}"
        meaning = "± is the longer side of the 95 % interval, clustered by draw and by image"
    return Table(
        title=title,
        columns=(
            *("model", "ShOp, paper", "ShOp", "ShPred, paper", "ShPred"),
            *("squared change", "loss increase"),
        ),
        rows=tuple(rows),
        note=f"σ = {config.sigma}, {config.num_draws} draws, n = "
        f"{sharpness[specs[0].name][0].num_examples} training images; {meaning}; "
        f"{training_note(config, images)}.",
    )


def _cell(of_seeds: Sequence[SharpnessEstimate], kind: str) -> str:
    if len(of_seeds) == 1:
        return str(getattr(of_seeds[0], kind))
    mean, low, high = change_interval(of_seeds, kind)
    means = [getattr(each, kind).mean for each in of_seeds]
    return f"{mean:.4g} ({low:.4g} – {high:.4g}; {min(means):.4g} – {max(means):.4g})"
