"""Claims of the image experiments."""

from collections.abc import Sequence

import numpy as np

from jaxsens.reporting.results import Claim
from jaxsens.reporting.run_folder import RunFolder

from .._common.seeds import with_seeds
from .config import ImageConfig
from .measuring import final_records
from .models import ModelSpec

#: Training accuracies closer than this count as matched.
MATCHED = 0.05


def matched_claim(
    specs: Sequence[ModelSpec], num_seeds: int, config: ImageConfig, folder: RunFolder
) -> Claim:
    """Whether the models fit their training images equally well, as a fair comparison needs.

    Of several seeds, whether their means do.
    """
    records = final_records(config, folder)
    accuracies = {
        spec.label: float(
            np.mean([records[each.name]["train_accuracy"] for each in with_seeds(spec, num_seeds)])
        )
        for spec in specs
    }
    gap = max(accuracies.values()) - min(accuracies.values())
    return Claim(
        statement=f"Training accuracies match within {MATCHED:.0%}",
        paper="matched, by eye in the figures",
        measured=", ".join(f"{label} {score:.3f}" for label, score in accuracies.items()),
        holds=gap <= MATCHED,
        values=accuracies | {"largest difference": gap},
        decided_by="largest difference",
        num_seeds=num_seeds,
    )
