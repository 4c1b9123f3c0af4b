"""The config of an experiment: a frozen dataclass that cannot be made with values out of bounds."""

from dataclasses import dataclass
from typing import Literal, TypeVar

from jaxsens.cli.bounds import check_fields

Preset = Literal["quick", "small", "paper"]
ConfigT = TypeVar("ConfigT", bound="ExperimentConfig")


class ConfigError(ValueError):
    """A value, or several together, that an experiment cannot use; the message is one line."""


@dataclass(frozen=True)
class ExperimentConfig:
    """What the configs of all experiments share: nobody has one that was not checked.

    Fields declare their bounds (`jaxsens.cli.bounds`). A field that is None is left open until
    `filled` knows the preset.
    """

    def __post_init__(self):
        try:
            check_fields(self)
            self.check()
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def check(self) -> None:
        """Raises ValueError for fields that are right one by one, but not together.

        Called whenever a config is made, so also before open fields are filled in.
        """

    def filled(self: ConfigT, preset: Preset) -> ConfigT:
        """The config with everything that was left open filled in; reads nothing from disk."""
        return self

    def resolved(self: ConfigT, preset: Preset) -> ConfigT:
        """The filled config, also checked against what it names on disk."""
        return self.filled(preset)
