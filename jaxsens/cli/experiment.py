"""What the command line needs of an experiment: the names that its package must have.

An experiment is a folder of `experiments/` whose `__init__.py` has them. Its docstring is shown by
`--exp list` (the first line) and `--exp NAME --help`; it has the command, the time and the result
to expect.
"""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Protocol, runtime_checkable

from jaxsens.cli.config import ExperimentConfig
from jaxsens.reporting.results import Findings
from jaxsens.reporting.run_folder import RunFolder


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
