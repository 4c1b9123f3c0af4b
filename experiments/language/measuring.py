"""How noise is let into the models of the experiment `language`, and every way to measure them.

Noise goes on one layer-normed embedding at a time, at the same place of every model.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxsens import Gaussian, Perturbation, Resample, SensitivityEstimate, Tokens, Whole
from jaxsens.measurement import ragged_sensitivity
from jaxsens.models import TextModel
from jaxsens.reporting.cached import cached_estimate_stage
from jaxsens.reporting.progress import Bar
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.text.tokenization import ordinary_ids

from .config import Config
from .loading import Encoded, TextData
from .models import TextModelSpec

#: For every way to measure, the estimates by model.
Measured = Mapping[str, Mapping[str, SensitivityEstimate]]
#: How noisy embeddings go on: straight into the network; layer-normed first, for every model alike;
#: or through the authors' code, which for RoBERTa embeds them a second time.
Route = Literal["direct", "renormalised", "authors"]
#: What is edited: one embedding, all embeddings at once, or one token for another.
Edit = Literal["token", "sentence", "word"]


class Entrance(NamedTuple):
    """A trained model, and the σ of the noise that enters it.

    What is edited is e / σ by unit noise, so that σ is a number of the compiled program, not part
    of it: one compilation serves every variance.
    """

    variables: Any
    sigma: Float[Array, ""]

    @classmethod
    def make(cls, variables: Any, variance: float) -> "Entrance":
        """For noise of this variance."""
        return cls(variables, jnp.float32(math.sqrt(variance)))


@functools.lru_cache(maxsize=64)
def entry(model: TextModel, route: Route = "direct") -> Any:
    """`apply_fn(entrance, x, mask)`: the network from its embeddings e = σ x on, by this route.

    One function object for each model and route, so that nothing is compiled twice. The route is
    not traced: a branch in the program would hide from `jaxsens.incremental` what can be reused.
    """
    if route == "authors" and type(model).embed_again is TextModel.embed_again:
        return entry(model, "direct")  # nothing is embedded again: the same program

    def apply_fn(entrance: Entrance, x: Any, mask: Array) -> Any:
        variables, e = entrance.variables, entrance.sigma * x
        if route == "renormalised":
            e = model.apply(variables, e, method="normalise")
        if route == "authors":
            e = model.apply(variables, e, mask, method="embed_again")
        return model.apply(variables, e, mask, method="from_embeddings")

    return apply_fn


@functools.lru_cache(maxsize=64)
def embedding(model: TextModel) -> Any:
    """`embed(entrance, tokens)`: the embeddings in units of σ, one function for each model."""

    def embed(entrance: Entrance, tokens: Int[Array, "n T"]) -> Any:
        e: Any = model.apply(entrance.variables, tokens, method="embed")
        return e / entrance.sigma

    return embed


@functools.lru_cache(maxsize=64)
def from_tokens(model: TextModel) -> Any:
    """`apply_fn(variables, tokens, mask)`: the whole network, which sees padding by itself."""

    def apply_fn(variables: Any, tokens: Int[Array, "n T"], mask: Array) -> Any:
        return model.apply(variables, tokens)

    return apply_fn


def measure(
    config: Config,
    spec: TextModelSpec,
    variables: Any,
    texts: Encoded,
    *,
    key: PRNGKeyArray,
    variance: float | None = None,
    route: Route = "direct",
    edit: Edit = "token",
) -> SensitivityEstimate:
    """Sensitivity over all real tokens; noise of the first variance unless another is given.

    A word is one token, in either text and at one place, exchanged for a token drawn uniformly from
    all but the special ones; places of special tokens are left out. The authors' variant replaces a
    word of the first text by a random word of the validation texts, wherever it occurs in it.
    """
    variance = variance or config.variances[0]
    with Bar(f"{spec.label}: measuring", "texts") as bar:
        common: dict[str, Any] = {"key": key, "progress": bar.measured}
        if edit == "word":
            words = ordinary_ids(spec.model.vocab_size)
            return ragged_sensitivity(
                from_tokens(spec.model),
                variables,
                texts.buckets,
                Perturbation(Tokens(), Resample(words.stop, first=words.start)),
                config.num_samples,
                which_tokens=lambda tokens: (tokens >= words.start) & (tokens < words.stop),
                **common,
            )
        grid = Tokens() if edit == "token" else Whole()
        estimate = ragged_sensitivity(
            entry(spec.model, route),
            Entrance.make(variables, variance),
            texts.buckets,
            Perturbation(grid, Gaussian(variance=1.0)),
            config.num_samples,
            embed=embedding(spec.model),
            **common,
        )
        return _described(estimate, Perturbation(grid, Gaussian(variance=variance)))


def _described(estimate: SensitivityEstimate, perturbation: Perturbation) -> SensitivityEstimate:
    """The estimate, which unit noise of e / σ gave, with what that does to the embeddings."""
    provenance = dataclasses.replace(estimate.provenance, perturbation=repr(perturbation))
    return dataclasses.replace(estimate, provenance=provenance)


def ways(config: Config, spec: TextModelSpec) -> dict[str, dict[str, Any]]:
    """Every measurement of one model at the end of training; "main" is the paper's."""
    if not spec.in_full:
        return {"main": {}}
    return {
        "main": {},
        **{f"variance {v:g}": {"variance": v} for v in config.variances[1:]},
        "validation": {"split": "validation"},
        "whole text": {"edit": "sentence"},
        "other words": {"edit": "word"},
        "renormalised": {"route": "renormalised"},
        **({"authors": {"route": "authors"}} if config.authors else {}),
    }


def summary(estimate: SensitivityEstimate) -> dict[str, Any]:
    """The estimate's numbers, with the token-weighted mean that the authors report."""
    mean, low, high = estimate.pooled()
    return estimate.summary() | {"token_weighted": {"mean": mean, "low": low, "high": high}}


def in_all_ways(specs: Sequence[TextModelSpec], measured: Measured) -> list[TextModelSpec]:
    """The models that were measured in every way."""
    return [spec for spec in specs if all(spec.name in found for found in measured.values())]


def measure_every_way(
    config: Config, data: TextData, spec: TextModelSpec, folder: RunFolder, variables: Any
) -> dict[str, SensitivityEstimate]:
    """A trained model measured in all its ways; files keep what was measured."""
    return {
        way: cached_estimate_stage(
            folder,
            f"estimates/{spec.name}-{way}",
            SensitivityEstimate,
            functools.partial(_measure, config, data, spec, variables, **options),
        )
        for way, options in ways(config, spec).items()
    }


def _measure(
    config: Config,
    data: TextData,
    spec: TextModelSpec,
    variables: Any,
    split: str = "train",
    **options: Any,
) -> SensitivityEstimate:
    # One key for all: models and ways of measuring share their noise, so differences are paired.
    key = jax.random.key(config.seed + 1)
    return measure(config, spec, variables, data.measured[split], key=key, **options)
