"""What the command line needs of an experiment: the names that its package must have.

An experiment is a folder of `experiments/` whose `__init__.py` has them, and may have `PAPERS`, the
papers that its report asks to cite. Its docstring is shown by `--exp list` (the first line) and
`--exp NAME --help`; it has the command, the time and the result to expect.
"""

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Protocol, cast, runtime_checkable

from jaxsens.cli.config import ExperimentConfig, Preset
from jaxsens.reporting.papers import Paper
from jaxsens.reporting.results import Findings
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.reporting.terminal import on_terminal


def papers_of(experiment: "Experiment") -> tuple[Paper, ...]:
    """The papers that an experiment is about, for its report; it may name none."""
    return tuple(getattr(experiment, "PAPERS", ()))


def cost_of(experiment: "Experiment", preset: str, config: ExperimentConfig) -> str | None:
    """What to expect of a run that takes longer than a minute, in one line; None for shorter ones.

    A cost in seconds is that of a short run. With other flags than the preset's the cost is not
    known, and that of the preset is only told to somebody who looks on.
    """
    cost = experiment.COST.get(preset, "")
    if not cost or re.search(r"\bseconds?\b", cost):
        return None
    if config == experiment.PRESETS[preset].filled(cast(Preset, preset)):
        return f"this takes longer than a minute: {cost}"
    if not on_terminal():
        return None
    return f"preset {preset} takes longer than a minute: {cost}; with your flags more or less"


@runtime_checkable
class Experiment(Protocol):
    """A package with a config, its presets and their cost, and functions that load and run."""

    @property
    def Config(self) -> type[ExperimentConfig]:
        """The flags: a frozen dataclass whose fields declare their bounds."""

    @property
    def PRESETS(self) -> Mapping[str, Any]:
        """A config for each of the presets quick, small and paper."""

    @property
    def COST(self) -> Mapping[str, str]:
        """What each of them takes, for `--exp list`."""

    def load(self, config: Any, data_dir: PurePath | None) -> Any:
        """The data of a run, or None; what depends on its size is checked here.

        Args:
          config: a resolved config.
          data_dir: where datasets are, if the user says so.

        Raises:
          ValueError: the config does not fit the data; the message is one line.
        """

    def run(self, config: Any, data: Any, folder: RunFolder) -> Findings:
        """Trains, measures and concludes; goes on where the folder says that it was.

        Args:
          config: a resolved config.
          data: what `load` gave.
          folder: the run's folder, held by this process.
        """
