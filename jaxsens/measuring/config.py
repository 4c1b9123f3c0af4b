"""What `python -m jaxsens.measure` is asked: a model, its weights, data, and a window edit."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

from jaxsens.cli.bounds import Count, Range, Seed
from jaxsens.cli.config import ConfigError, ExperimentConfig, Preset
from jaxsens.measuring.words import FileName, Samples, WordOf

Model = Annotated[str, FileName("module:function or file.py:function")]
Path = Annotated[str, FileName("the name of a file or folder")]
Other = Annotated[str, FileName("weights, module:function@weights or a Hugging Face folder")]


@dataclass(frozen=True)
class Config(ExperimentConfig):
    """Measures a model of yours: how sensitive it is to a change of one window of its input."""

    FLAG_GROUPS = MappingProxyType(
        {
            "what to run": ("model", "params*", "hf", "compare", "data", "split", "num_examples"),
            "what to measure": ("grid", "edit", "samples", "tolerance", "metric", "check_model"),
            "where": ExperimentConfig.FLAG_GROUPS["where"],
        }
    )

    model: Model | None = None
    """Your model, as module:function or file.py:function: apply_fn(params, x) -> logits, a Flax
    module, a pair (apply_fn, params), or a model of PyTorch, Equinox, Keras or nnx."""
    params: Path | None = None
    """Its weights: a safetensors or npz file, or a folder of orbax. Nothing is unpickled."""
    params_keys: Literal["nested", "flat"] = "nested"
    """nested: names such as a/b or a.b become dicts in dicts; flat: one dict."""
    hf: Path | None = None
    """A Hugging Face folder (config.json, model.safetensors) in place of --model and --params."""
    compare: tuple[Other, ...] = ()
    """More models for paired differences: other weights of the same --model, module:function@FILE,
    or other Hugging Face folders."""
    data: Path | None = None
    """npy or npz file (memory-mapped), a folder of PNG and JPEG images, a text file (a line each,
    for --hf), or the name of a dataset of jaxsens.data."""
    split: Literal["train", "test"] = "test"
    """Of a dataset of jaxsens.data."""
    image_size: Annotated[int, Range(1, 4096)] | None = None
    """Pixels of a side that images of a folder are scaled to; default as they are."""
    num_examples: Count | None = None
    """Takes the first so many; default all."""
    grid: Annotated[str, WordOf("grid")] | None = None
    """Windows: patches:4, overlapping:4, tokens, bits, whole; default tokens for texts, and for
    --hf the model's own patches."""
    edit: Annotated[str, WordOf("edit")] = "gaussian:sigma=1"
    """What happens to a window: gaussian:variance=5, resample:vocabulary=100, flip, donor, ball:1,
    replace:0, replace:mean, replace:blur,sigma=3."""
    samples: Annotated[str, Samples()] = "5"
    """Draws at each position; all takes every replacement of a finite edit once."""
    tolerance: Annotated[float, Range(0, 1e6, "()")] | None = None
    """Draws at random until half of the 95 % interval is this; default measures every position."""
    metric: Literal[
        "label_flip", "probability_drop", "logit_drop", "relative_l2", "squared_change"
    ] = "label_flip"
    """What counts as a change of the output."""
    seed: Seed = 0
    """Of the draws."""
    shown: Annotated[int, Range(0, 24)] = 6
    """The most sensitive examples that the report shows."""
    check_model: bool = True
    """Refuse a model whose output for an example depends on the rest of its batch."""

    def resolved(self, preset: Preset = "quick") -> "Config":
        """The config itself; ConfigError, in one line, if something is missing or too much."""
        problem = self._problem()
        if problem is not None:
            raise ConfigError(problem)
        return self

    def _problem(self) -> str | None:
        if (self.model is None) == (self.hf is None):
            return "give a model: --model module:function, or --hf DIR; one of them"
        if self.hf is not None and self.params is not None:
            return "--params belongs to --model: leave it out, --hf has its own weights"
        if self.data is None:
            return "--data is missing: an npy or npz file, an image folder, or a dataset's name"
        if self.compare and self.tolerance is not None:
            return "--compare needs every position of the same examples: leave --tolerance out"
        return None

    @property
    def num_samples(self) -> int | Literal["all"]:
        """S, or "all"."""
        return "all" if self.samples == "all" else int(self.samples)
