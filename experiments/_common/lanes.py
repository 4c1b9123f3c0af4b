"""Many trainings in one program that leave records, as `jaxsens.training.lanes` trains them.

After an evaluation its record goes into metrics.jsonl, then, not too often, the state to disk; so
does a state between two evaluations that are far apart. Killed at any moment, a run goes on from
the last state and repeats no record. Evaluations lie at fixed steps, and where training is cut
changes no bit, so the rest comes out the same.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxsens.core import runtime
from jaxsens.reporting.progress import Bar, say
from jaxsens.reporting.records import records_of
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training import lanes
from jaxsens.training.checkpoints import Checkpoints, DamagedCheckpointError
from jaxsens.training.lanes import LaneState, LaneTask
from jaxsens.training.pace import Pace
from jaxsens.training.trainer import SECONDS_BETWEEN_CHECKPOINTS

from .training import open_checkpoints, require_same_devices

#: `measure(step, state) -> measures`, each a list with one value per lane.
Measure = Callable[[int, LaneState], dict[str, list[Any]]]


def train_lanes(
    folder: RunFolder,
    name: str,
    task: LaneTask,
    of_lanes: Any,
    *,
    identity: dict[str, str],
    schedule: Sequence[int],
    measure: Measure,
    progress: Callable[[dict[str, list[Any]]], str] = lambda measured: "",
    unit: str = "steps",
    block: int | None = None,
) -> LaneState:
    """Trains all lanes to the end and records every evaluation.

    Args:
      folder: the run's folder.
      name: of these lanes in records and checkpoints.
      task: what the lanes share.
      of_lanes: what they do not.
      identity: see `jaxsens.training.checkpoints.training_identity`.
      schedule: the steps after which they are measured, the last one included.
      measure: makes a record's measures; not called for steps that are recorded.
      progress: what the progress bar says of a record's measures.
      unit: what a step is called there.
      block: lanes that are vmapped together; default those of a device. Then the number of devices
        decides the bits, and is kept in the folder.

    Returns:
      The state after the last step.
    """
    recorded = {record["epoch"] for record in records_of(folder, name)}
    state, last = lanes.start(task, of_lanes), schedule[-1]
    clock = saved = time.monotonic()
    pace = Pace()
    if block is None:
        require_same_devices(folder)
    with (
        open_checkpoints(folder, name, identity) as checkpoints,
        Bar(f"{name}: training", unit, last) as bar,
    ):
        state, done = _restored(checkpoints, state)
        for step in (step for step in schedule if step >= done):
            while done < step:
                num = min(pace.num_steps, step - done)
                started = time.monotonic()
                state = lanes.advance(task, of_lanes, state, done, num, block)
                jax.block_until_ready(state)
                pace.took(num, time.monotonic() - started)
                done += num
                if done < step and waited_since(saved) > SECONDS_BETWEEN_CHECKPOINTS:
                    checkpoints.save(done, state)
                    saved = time.monotonic()
            if step not in recorded:
                measured = measure(step, state)
                now = time.monotonic()
                folder.append(
                    {"model": name, "epoch": step, "measured": measured, "seconds": now - clock}
                )
                clock = now
                bar.update(step, last, progress(measured))
            if waited_since(saved) > SECONDS_BETWEEN_CHECKPOINTS or step == last:
                checkpoints.save(step, state)
                saved = time.monotonic()
    return state


def waited_since(moment: float) -> float:
    """Seconds since then, of the process that waits longest; every process must call this."""
    return runtime.largest_of_hosts(time.monotonic() - moment)


def _restored(checkpoints: Checkpoints, state: LaneState) -> tuple[LaneState, int]:
    """The last state that can be read and its step; the given one, at step 0, if there is none."""
    while steps := checkpoints.epochs():
        try:
            return checkpoints.restore(steps[-1], like=state), steps[-1]
        except DamagedCheckpointError as error:
            say(f"{error}; the one before it is taken")
    return state, 0
