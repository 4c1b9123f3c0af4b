"""The config of an experiment: a frozen dataclass that cannot be made with values out of bounds."""

from dataclasses import dataclass
from types import MappingProxyType
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

    Attributes:
      FLAG_GROUPS: the groups of `--help`, and patterns of the fields that stand in each; the first
        that fits counts. All other fields are "what to run".
    """

    # Not annotated, or dataclasses would list it among the fields.
    FLAG_GROUPS = MappingProxyType(
        {
            "what to run": ("seed", "num_seeds", "*_seeds"),
            "what to measure": (
                *("patch", "edit", "variance*", "estimator", "tolerance", "sigma", "*_sigma"),
                *("corruptions", "*severit*", "sharpness", "released", "epsilon", "precision"),
                "token_noise",
                *(
                    "num_samples",
                    "num_draws",
                    "num_measured",
                    "num_along",
                    "num_accuracy",
                    "num_final",
                ),
                *("num_sharpness", "num_corrupted", "num_directions", "num_inputs", "num_random"),
                *("num_enumerated", "num_checked", "num_starts", "num_steps", "num_places"),
                *("*_limit", "mean_share"),
            ),
            "training": (
                *("epochs", "*_epochs", "*every", "num_train", "num_test", "train_*", "batch*"),
                *(
                    "learning_rate",
                    "*_rate",
                    "*decay",
                    "optimizer",
                    "schedule",
                    "dropout",
                    "*_steps",
                ),
                *(
                    "reduced",
                    "depth",
                    "width",
                    "hidden",
                    "heads",
                    "layers",
                    "tied",
                    "prenorm",
                    "block",
                ),
                *("vocab_size", "max_length"),
            ),
            "where": (
                *("workdir", "data_dir", "reuse", "tokenizer", "embeddings", "skip_bad_rows"),
                *("distributed", "coordinator", "num_processes", "process_id", "parallel_arms"),
            ),
        }
    )

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
