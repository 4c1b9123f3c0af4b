"""Claims of the image experiments."""

from collections.abc import Sequence

from jaxsens.reporting.results import Claim
from jaxsens.reporting.run_folder import RunFolder

from .config import ImageConfig
from .measuring import final_records
from .models import ModelSpec

#: Training accuracies closer than this count as matched.
MATCHED = 0.05


def matched_claim(config: ImageConfig, specs: Sequence[ModelSpec], folder: RunFolder) -> Claim:
    """Whether the models fit their training images equally well, as a fair comparison needs."""
    records = final_records(config, folder)
    accuracies = {spec.label: records[spec.name]["train_accuracy"] for spec in specs}
    gap = max(accuracies.values()) - min(accuracies.values())
    return Claim(
        statement=f"Training accuracies match within {MATCHED:.0%}",
        paper="matched, by eye in the figures",
        measured=", ".join(f"{label} {score:.3f}" for label, score in accuracies.items()),
        holds=gap <= MATCHED,
        values=accuracies | {"largest difference": gap},
        decided_by="largest difference",
        num_seeds=1,
    )
