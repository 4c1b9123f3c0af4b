"""Tables of the experiment `estimators`."""

from collections.abc import Mapping, Sequence

from jaxsens import data
from jaxsens.reporting.results import Table

from .._images.loading import Images
from .._images.models import ModelSpec
from .._images.tables import training_note
from .config import Config
from .measuring import DEFINITION, ByWay


def ways_table(
    config: Config, images: Images, specs: Sequence[ModelSpec], measured: Mapping[str, ByWay]
) -> Table:
    """Every model measured in every way, with its ratio to the definition and its cost."""
    rows = []
    for spec in specs:
        base = measured[spec.name][DEFINITION].mean
        for name, estimate in measured[spec.name].items():
            low, high = estimate.ci()
            rows.append(
                (
                    spec.label,
                    name,
                    spec.paper,
                    f"{estimate.mean:.4f}",
                    f"{low:.4f} – {high:.4f}",
                    f"{estimate.mean / base:.2f}" if base else None,
                    estimate.provenance.num_passes,
                )
            )
    return Table(
        title=f"Ways to measure, after {config.epochs} epochs on {data.spec(config.dataset).title}",
        columns=("model", "estimator", "paper", "measured", "95 % interval", "ratio", "passes"),
        rows=tuple(rows),
        note=f"v = {config.variance:g}, p = {config.patch}, S = {config.num_samples}; ratio to the "
        f"patch grid; {'first ' + str(config.num_measured) if config.num_measured else 'all'} "
        "training images, all of them for 'to a tolerance'; "
        f"{training_note(config, images)}.",
    )
