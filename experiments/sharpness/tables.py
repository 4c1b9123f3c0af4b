"""Tables of the experiment `sharpness`."""

from collections.abc import Sequence

from jaxsens.reporting.results import Table

from .._images.loading import Images
from .._images.models import ModelSpec
from .._images.tables import training_note
from .config import Config
from .measuring import SharpnessByModel
from .paper import TABLE_2, PaperSharpness


def sharpness_table(
    config: Config,
    images: Images,
    specs: Sequence[ModelSpec],
    sharpness: SharpnessByModel,
    how: str,
) -> Table:
    """Every kind of change of every model, beside Table 2."""
    rows = []
    for spec in specs:
        estimate, paper = sharpness[spec.name], PaperSharpness()
        if config.dataset == "cifar10":
            paper = TABLE_2.get(spec.name, paper)
        cells = [paper.l1, str(estimate.l1), paper.flips, str(estimate.flips)]
        rows.append((spec.label, *cells, str(estimate.squared), str(estimate.loss)))
    return Table(
        title=f"Sharpness after {config.epochs} epochs: {how}",
        columns=(
            *("model", "ShOp, paper", "ShOp", "ShPred, paper", "ShPred"),
            *("squared change", "loss increase"),
        ),
        rows=tuple(rows),
        note=f"σ = {config.sigma}, {config.num_draws} draws, n = "
        f"{sharpness[specs[0].name].num_examples} training "
        "images; ± is the longer side of the 95 % interval, clustered by draw and by image; "
        f"{training_note(config, images)}.",
    )
