"""What a run computes once and then reads from its folder, so that a resumed run goes on after it.

    cached_file            the content of any file
    cached_estimate        a measurement, in a file; part of something whose time is recorded
    cached_estimate_stage  a measurement, in a file; a stage of its own, whose time is recorded
    cached_stage           a small value, in metrics.jsonl

Measurements inside the last three, interrupted, go on where they were, but for the last seconds.

Assumption: what is computed depends on nothing but the config and the data that the folder was
opened with, which refuses others.
"""

import contextlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

from jaxsens.core import hosts
from jaxsens.measurement import SensitivityEstimate, SharpnessEstimate
from jaxsens.reporting.partial_results import resumable
from jaxsens.reporting.plain_json import plain
from jaxsens.reporting.progress import say
from jaxsens.reporting.records import records
from jaxsens.reporting.run_folder import RunFolder

ContentT = TypeVar("ContentT")
EstimateT = TypeVar("EstimateT", SensitivityEstimate, SharpnessEstimate)


def cached_file(
    folder: RunFolder,
    name: str,
    make: Callable[[], str | bytes],
    parse: Callable[[bytes], ContentT],
) -> ContentT:
    """What a file of the run's folder holds; made now if the file is missing or damaged.

    Args:
      folder: the run's folder.
      name: the file, as in "estimates/cnn.json".
      make: computes its content.
      parse: understands it; whatever it raises means damage.

    Example:
      >>> import tempfile
      >>> with (
      ...     tempfile.TemporaryDirectory() as place,
      ...     RunFolder.open(f"{place}/run", "vision", {}) as folder,
      ... ):
      ...     for content in ("1", "2"):
      ...         cached_file(folder, "number.txt", lambda: content, int)  # the second is not made
      1
      1
    """
    if folder.intact(name):
        with contextlib.suppress(Exception):  # damage may show in any way
            return parse(folder.read_bytes(name))
    if folder.exists(name):
        say(f"{folder.path / name} is damaged; it is computed again")
    folder.write(name, make())
    return parse(folder.read_bytes(name))


def cached_estimate(
    folder: RunFolder, name: str, kind: type[EstimateT], measure: Callable[[], EstimateT]
) -> EstimateT:
    """The estimate in a file of the run's folder; measured now if it is missing or damaged.

    For what belongs to a record that counts the seconds itself; else `cached_estimate_stage`.

    Args:
      folder: the run's folder.
      name: the file without its ending, as in "estimates/cnn".
      kind: the class of the estimate.
      measure: measures.
    """
    with resumable(folder, name):
        return cached_file(
            folder,
            f"{name}.json",
            lambda: measure().to_json(),
            lambda content: kind.from_json(content.decode()),
        )


def cached_estimate_stage(
    folder: RunFolder, name: str, kind: type[EstimateT], measure: Callable[[], EstimateT]
) -> EstimateT:
    """Like `cached_estimate`, and a record says how many seconds it took to measure.

    A process that was killed between the two has left the file alone: then nobody knows how long it
    took, and the record says 0.
    """
    seconds: list[float] = []

    def timed() -> EstimateT:
        started = time.perf_counter()
        estimate = measure()
        seconds.append(time.perf_counter() - started)
        return estimate

    estimate = cached_estimate(folder, name, kind, timed)
    if seconds or not any(record.get("stage") == name for record in records(folder)):
        folder.append({"stage": name, "seconds": sum(seconds)})
    return estimate


def cached_stage(folder: RunFolder, name: str, compute: Callable[[], Any]) -> Any:
    """What `compute` gave when the stage of that name was first reached, as JSON gives it back.

    Example:
      >>> import tempfile
      >>> with (
      ...     tempfile.TemporaryDirectory() as place,
      ...     RunFolder.open(f"{place}/run", "vision", {}) as folder,
      ... ):
      ...     for levels in ((0.1, 0.2), (0.3,)):
      ...         cached_stage(folder, "levels", lambda: levels)  # the second is not computed
      [0.1, 0.2]
      [0.1, 0.2]
    """
    for record in records(folder):
        if record.get("stage") == name and "value" in record:
            return record["value"]
    started = time.perf_counter()
    with resumable(folder, name):
        value = hosts.agreed(plain(compute(), name))
        folder.append({"stage": name, "value": value, "seconds": time.perf_counter() - started})
    return value
