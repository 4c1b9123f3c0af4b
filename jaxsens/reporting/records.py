"""The records of a run: what metrics.jsonl says of its models along training and of its stages.

A record is of a model at an epoch ("model", "epoch") or of a stage ("stage"), and has the seconds
that it took.
"""

import math
from typing import Any

from jaxsens.reporting.run_folder import RunFolder, WorkdirError

#: One line of metrics.jsonl.
Record = dict[str, Any]


def records(folder: RunFolder) -> list[Record]:
    """All records, in the order in which they were made.

    Raises:
      WorkdirError: a line of metrics.jsonl is no record of a model or of a stage.
    """
    found = folder.appended()
    for line, record in enumerate(found, start=1):
        of_model = isinstance(record.get("model"), str) and isinstance(record.get("epoch"), int)
        of_stage = isinstance(record.get("stage"), str)
        if not (of_model or of_stage) or not isinstance(record.get("seconds"), int | float):
            raise WorkdirError(
                f"{folder.path / 'metrics.jsonl'}, line {line}: expected a record with model and "
                f"epoch, or stage, and seconds, got {record!s:.80}; delete the line, or choose "
                "another --workdir"
            )
    return found


def records_of(folder: RunFolder, model: str) -> list[Record]:
    """The records of one model along training, by epoch.

    Example:
      >>> import tempfile
      >>> with (
      ...     tempfile.TemporaryDirectory() as place,
      ...     RunFolder.open(f"{place}/run", "vision", {}) as folder,
      ... ):
      ...     folder.append({"model": "ViT", "epoch": 1, "sensitivity": 0.1, "seconds": 2.0})
      ...     folder.append({"stage": "figures", "seconds": 0.5})
      ...     records_of(folder, "ViT")
      [{'model': 'ViT', 'epoch': 1, 'sensitivity': 0.1, 'seconds': 2.0}]
    """
    mine = [record for record in records(folder) if record.get("model") == model]
    return sorted(mine, key=lambda record: record["epoch"])


def total_seconds(folder: RunFolder) -> float:
    """How long training and measuring took, over all sessions of the run.

    Example:
      >>> import tempfile
      >>> with (
      ...     tempfile.TemporaryDirectory() as place,
      ...     RunFolder.open(f"{place}/run", "vision", {}) as folder,
      ... ):
      ...     folder.append({"model": "ViT", "epoch": 1, "seconds": 2.0})
      ...     folder.append({"stage": "figures", "seconds": 0.5})
      ...     total_seconds(folder)
      2.5
    """
    return math.fsum(record["seconds"] for record in records(folder))
