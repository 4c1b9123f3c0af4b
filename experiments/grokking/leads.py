"""When does a measure announce that a network will generalise? From raw curves, run by run.

All times are evaluations of one run, nothing is smoothed.

* memorised: the first evaluation with training accuracy 1.
* jump: the first evaluation after it with a test accuracy at least half way from its value when
  memorised to 1. A run that does not end at 0.95 or more has none.
* crossing of a share s: a measure goes from its worst value between memorised and jump to its value
  at the end of the run. The crossing is the first evaluation from which on, up to the jump, it
  has always covered the share s of this way; if it has not at the jump, the first one after it.
* lead = jump − crossing, in epochs; negative if the measure comes late.

A lead so defined knows the end of the run. And it proves nothing alone: what falls in every run,
such as the weight norm under weight decay, "leads" any jump. So there is an alarm too:

* alarm: the first evaluation from which on, up to the jump, the measure is better than it ever was
  in any control run that had memorised: runs of the same length without a rule, or without weight
  decay, which do not generalise. If it is not at the jump, the first one after it, if any. There
  is one alarm for each control, and one for all of them.

A measure of progress must give the alarm for all controls before the jump.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from jaxsens.core.intervals import student_interval

#: Test accuracy that counts as having generalised.
GENERALISED = 0.95
#: Columns of the leads: shares of the way, then the controls by name, then all controls.
SHARES = {"10 %": 0.1, "50 %": 0.5}
ALARM = "alarm"


@dataclass(frozen=True)
class Measure:
    """A curve that may announce the jump.

    Attributes:
      name: its key in records.
      label: its name for readers.
      sign: 1 if it rises with generalisation, −1 if it falls.
      sensitivity: whether it is one of the sensitivities.
    """

    name: str
    label: str
    sign: int
    sensitivity: bool = False


def memorised(train_accuracy: Float[np.ndarray, " m"]) -> int | None:
    """Index of the first evaluation with training accuracy 1.

    >>> memorised(np.array([0.1, 1.0, 0.99]))
    1
    """
    (found,) = np.nonzero(train_accuracy >= 1.0)
    return int(found[0]) if len(found) else None


def jump(test_accuracy: Float[np.ndarray, " m"], start: int) -> int | None:
    """Index of the first evaluation half way to 1, or None for a run that does not generalise.

    >>> jump(np.array([0.0, 0.3, 0.3, 0.6, 0.9, 1.0]), start=1)
    4
    """
    if test_accuracy[-1] < GENERALISED:
        return None
    half = (test_accuracy[start] + 1) / 2
    return start + int(np.argmax(test_accuracy[start:] >= half))


def crossing(
    values: Float[np.ndarray, " m"], sign: int, start: int, at: int, share: float
) -> int | None:
    """Index of the crossing of a share of the way; None if the measure ends no better.

    >>> fall = np.array([1.0, 9.0, 10.0, 8.0, 6.0, 4.0, 2.0, 0.0])
    >>> crossing(fall, -1, start=1, at=6, share=0.5)
    5
    """
    better = sign * values
    worst, end = better[start : at + 1].min(), better[-1]
    if end <= worst:
        return None
    return _since(better >= worst + share * (end - worst), start, at)


def alarm(
    values: Float[np.ndarray, " m"], sign: int, start: int, at: int, limit: float
) -> int | None:
    """Index from which on the measure is beyond `limit`, the controls' best; None for never.

    >>> alarm(np.array([5.0, 5.0, 3.0, 4.0, 2.0, 1.0]), -1, start=0, at=5, limit=3.5)
    4
    """
    return _since(sign * values > sign * limit, start, at)


def _since(past: np.ndarray, start: int, at: int) -> int | None:
    """The first index from which on, up to `at`, all is past; else the first past after it."""
    if past[at]:
        (before,) = np.nonzero(~past[start:at])
        return start + (int(before[-1]) + 1 if len(before) else 0)
    (later,) = np.nonzero(past[at:])
    return at + int(later[0]) if len(later) else None


def largest_rise(values: Float[np.ndarray, " m"]) -> float:
    """max_{i<j} v_j − v_i, as a share of the largest value: 0 for a curve that only falls.

    >>> largest_rise(np.array([4.0, 1.0, 3.0, 0.0]))
    0.5
    """
    rise = (values - np.minimum.accumulate(values)).max()
    return float(rise / values.max()) if values.max() > 0 else 0.0


@dataclass(frozen=True)
class Run:
    """When things happened in one run; None for what did not.

    Attributes:
      memorised: epoch.
      jump: epoch.
      plateau: test accuracy when memorised.
      final: test accuracy at the end.
      leads: for every measure and column, epochs before the jump.
    """

    memorised: int | None
    jump: int | None
    plateau: float | None
    final: float
    leads: dict[str, dict[str, float | None]]


def analyse(
    measures: Sequence[Measure],
    curves: dict[str, np.ndarray],
    controls: Mapping[str, dict[str, np.ndarray]],
) -> list[Run]:
    """Every run of an arm.

    Args:
      measures: what to time.
      curves: the arm's "epochs" (m,) and measures (seeds, m).
      controls: the same of arms that should not generalise, by name. Runs that do are left out.
    """
    quiet = {name: _quiet_runs(control) for name, control in controls.items()}
    quiet[ALARM] = [run for runs in quiet.values() for run in runs]
    limits = {name: {m.name: limit(runs, m) for m in measures} for name, runs in quiet.items()}
    return [_analyse_run(measures, curves["epochs"], run, limits) for run in _runs(curves)]


def limit(runs: Sequence[dict[str, np.ndarray]], measure: Measure) -> float | None:
    """The best value of control runs after each had memorised; None if none ever did."""
    starts = [memorised(run["train_accuracy"]) for run in runs]
    seen = [
        measure.sign * run[measure.name][start:]
        for run, start in zip(runs, starts, strict=True)
        if start is not None
    ]
    return float(measure.sign * max(part.max() for part in seen)) if seen else None


def _runs(curves: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    return [
        {name: values[i] for name, values in curves.items() if name != "epochs"}
        for i in range(len(curves["test_accuracy"]))
    ]


def _quiet_runs(curves: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    return [run for run in _runs(curves) if run["test_accuracy"][-1] < GENERALISED]


def _analyse_run(
    measures: Sequence[Measure],
    epochs: Int[np.ndarray, " m"],
    run: dict[str, np.ndarray],
    limits: dict[str, dict[str, float | None]],
) -> Run:
    final = float(run["test_accuracy"][-1])
    start = memorised(run["train_accuracy"])
    if start is None:
        return Run(None, None, None, final, {})
    plateau, at = float(run["test_accuracy"][start]), jump(run["test_accuracy"], start)
    if at is None:
        return Run(int(epochs[start]), None, plateau, final, {})
    leads = {}
    for m in measures:
        values = run[m.name]
        found = {name: crossing(values, m.sign, start, at, share) for name, share in SHARES.items()}
        for name, bounds in limits.items():
            bound = bounds[m.name]
            found[name] = None if bound is None else alarm(values, m.sign, start, at, bound)
        leads[m.name] = {
            name: None if i is None else float(epochs[at] - epochs[i]) for name, i in found.items()
        }
    return Run(int(epochs[start]), int(epochs[at]), plateau, final, leads)


@dataclass(frozen=True)
class MeanOverRuns:
    """A mean over runs with its 95 % t-interval, infinite for a single run."""

    mean: float
    low: float
    high: float
    num: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "MeanOverRuns | None":
        """Of the values there are; None without any.

        >>> MeanOverRuns.of([3.0, None, 5.0]).num
        2
        """
        there = np.array([v for v in values if v is not None], float)
        if not len(there):
            return None
        return cls(*student_interval(there), len(there))

    @property
    def ends(self) -> tuple[float, float]:
        """(low, high)."""
        return self.low, self.high

    def text(self, digits: int = 0) -> str:
        """For tables."""
        mean = f"{self.mean:.{digits}f}"
        if self.num == 1:
            return f"{mean} (one run)"
        return f"{mean} ({self.low:.{digits}f} to {self.high:.{digits}f})"

    @property
    def positive(self) -> bool:
        """Whether the whole interval lies above 0."""
        return self.low > 0
