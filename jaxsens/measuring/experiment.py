"""A measurement of the command line, in the form of an experiment: it loads, and it runs.

Everything that the user can mend is found while loading, before a folder is made: weights that are
nan, a model in training mode, windows that do not fit.
"""

import dataclasses
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsens import measurement
from jaxsens.cli import failures
from jaxsens.core.fingerprint import digest
from jaxsens.measurement import SensitivityEstimate
from jaxsens.measurement.preparation import prepare_job
from jaxsens.measuring.config import Config
from jaxsens.measuring.data import Examples, load_examples
from jaxsens.measuring.findings import Measured, findings_of
from jaxsens.measuring.models import Model, load_models
from jaxsens.measuring.words import EDITS, GRIDS, made_of
from jaxsens.perturbations import Perturbation
from jaxsens.reporting.cached import cached_estimate_stage
from jaxsens.reporting.progress import Bar, step_moved, steps
from jaxsens.reporting.results import Findings
from jaxsens.reporting.run_folder import RunFolder

#: Examples that a model is tried on before anything is measured.
_NUM_TRIED = 2


@dataclass(frozen=True)
class Subject:
    """A model, the examples as it takes them, and the window edit."""

    model: Model
    examples: Examples
    perturbation: Perturbation


@dataclass(frozen=True)
class Loaded:
    """What a run measures, one model after the other."""

    subjects: Sequence[Subject]

    def sources(self) -> dict[str, Any]:
        """What tells this run's weights and data from others."""
        found: dict[str, Any] = {}
        for subject in self.subjects:
            label = subject.model.label
            found[f"weights.{label}"] = (digest(jax.tree.leaves(subject.model.params)),)
            for name, value in subject.examples.sources().items():
                found[f"{name}.{label}"] = value
        return found


def load(config: Config, data_dir: PurePath | None = None) -> Loaded:
    """Models and examples, and whether they fit each other.

    Raises:
      ValueError: something cannot be read, or they do not; the message is one line.
    """
    edit = made_of(config.edit, EDITS)
    if config.hf is not None:
        # PyTorch takes a second to import, and few have it.
        hugging_face = importlib.import_module("jaxsens.measuring.hugging_face")
        found = hugging_face.load_subjects(config, data_dir)
    else:
        models, examples = load_models(config), load_examples(config, data_dir)
        grid = made_of(config.grid or _usual_grid(examples), GRIDS)
        found = [(model, examples, grid) for model in models]
    subjects = [
        Subject(model, examples, Perturbation(grid, edit)) for model, examples, grid in found
    ]
    for subject in subjects:
        _try(config, subject)
    return Loaded(subjects)


def _usual_grid(examples: Examples) -> str:
    shape = tuple(examples.x.shape)
    if len(shape) in (2, 3):
        return "tokens"
    raise ValueError(
        f"--grid is missing: examples have shape {shape[1:]}; give patches:P, overlapping:P, "
        "tokens, bits or whole"
    )


def _try(config: Config, subject: Subject) -> None:
    """Raises ValueError if the model cannot be measured on these examples."""
    model, examples = subject.model, subject.examples
    for path, leaf in jax.tree_util.tree_leaves_with_path(model.params):
        is_real = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
        if is_real and bool(jnp.isnan(leaf).any()):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            raise ValueError(
                f"{model.label}: weights in {name} are nan; give a model whose training did not "
                "diverge"
            )
    rows = np.arange(min(_NUM_TRIED, len(examples.x)))
    if examples.mask is not None:
        rows = np.flatnonzero(np.asarray(examples.mask).any(axis=1))[:_NUM_TRIED]
    some = jax.tree.map(lambda values: values[rows], (examples.context, examples.mask))
    arguments = _arguments(config, subject)
    arguments |= {"x": examples.x[rows], "context": some[0], "mask": some[1]}
    arguments |= {"incremental": False}
    try:
        prepare_job(**arguments)
    except TypeError as error:
        # Of a function of the user's that JAX cannot trace.
        raise ValueError(f"{model.label}: {error}") from error


def _arguments(config: Config, subject: Subject) -> dict[str, Any]:
    """What `jaxsens.sensitivity` is called with."""
    return {
        "apply_fn": subject.model.apply_fn,
        "params": subject.model.params,
        "x": subject.examples.x,
        "perturbation": subject.perturbation,
        "num_samples": config.num_samples,
        "key": jax.random.key(config.seed),
        "context": subject.examples.context,
        "mask": subject.examples.mask,
        "metric": getattr(measurement, config.metric),
        "check": config.check_model,
    }


def run(config: Config, loaded: Loaded, folder: RunFolder) -> Findings:
    """Measures every model, or reads what was measured before, and says what was found."""
    measured = []
    of_all = steps(enumerate(loaded.subjects), lambda item: item[1].model.label)
    for number, subject in of_all:
        name, measure = f"estimates/model_{number}", partial(_measure, config, subject)
        estimate = cached_estimate_stage(folder, name, SensitivityEstimate, measure)
        measured.append(Measured(subject.model, subject.examples, estimate))
    return findings_of(config, measured, folder)


def _measure(config: Config, subject: Subject) -> SensitivityEstimate:
    # To a tolerance draws are counted, or examples if those do not suffice.
    unit = "examples" if config.tolerance is None else ""
    with failures.of_usage(), Bar(f"{subject.model.label}: measuring", unit) as bar:

        def moved(done: int, total: int, mean: float) -> None:
            bar.measured(done, total, mean)
            step_moved(done, total)

        return measurement.sensitivity(
            **_arguments(config, subject), tolerance=config.tolerance, progress=moved
        )


@dataclass(frozen=True)
class MeasureExperiment:
    """What `jaxsens.run.carry_out` runs: the models and data have been loaded already."""

    loaded: Loaded
    Config: type[Config] = Config
    PRESETS: Any = dataclasses.field(default_factory=dict)
    COST: Any = dataclasses.field(default_factory=dict)

    def load(self, config: Any, data_dir: PurePath | None) -> Loaded:
        """What was loaded."""
        return self.loaded

    def run(self, config: Any, data: Loaded, folder: RunFolder) -> Findings:
        """Measures."""
        return run(config, data, folder)
