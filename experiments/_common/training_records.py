"""The records of a compared model's training: its own, or one that it shares.

A model may be measured in several ways in the course of one training. Each of them is a model in
comparisons, with the same accuracies and a sensitivity of its own.
"""

from typing import Protocol, runtime_checkable

from jaxsens.reporting.records import Record, records_of
from jaxsens.reporting.run_folder import RunFolder

from .claims import ComparedModel


@runtime_checkable
class SharesTraining(Protocol):
    """A model that says where the records of its training are."""

    @property
    def training(self) -> str:
        """The key of these records."""

    @property
    def field(self) -> str:
        """Their field with its sensitivity."""


def training_records(folder: RunFolder, model: ComparedModel) -> list[Record]:
    """The records of a model's training, by epoch; "sensitivity" is that of the model."""
    if not isinstance(model, SharesTraining):
        return records_of(folder, model.name)
    found = records_of(folder, model.training)
    return [record | {"sensitivity": record[model.field]} for record in found]
