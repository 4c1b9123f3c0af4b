"""How the language experiment trains its models and lets noise into them.

Noise goes on one layer-normed embedding at a time, at the same place of every model.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxsens import Gaussian, Perturbation, Resample, SensitivityEstimate, Tokens, Whole
from jaxsens.measurement.ragged import ragged_sensitivity
from jaxsens.models import TextModel
from jaxsens.reporting.progress import Bar
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.text.tokenization import ordinary_ids
from jaxsens.training.bucketed import BucketTrainer
from jaxsens.training.trainer import TrainState, correct

from .._common import study
from .._common.study import Record
from .training import Config, Encoded, TextArm, TextData

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
    arm: TextArm,
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
    with Bar(f"{arm.label}: measuring", "texts") as bar:
        common: dict[str, Any] = {"key": key, "progress": bar.measured}
        if edit == "word":
            words = ordinary_ids(arm.model.vocab_size)
            return ragged_sensitivity(
                from_tokens(arm.model),
                variables,
                texts.buckets,
                Perturbation(Tokens(), Resample(words.stop, first=words.start)),
                config.num_samples,
                which_tokens=lambda tokens: (tokens >= words.start) & (tokens < words.stop),
                **common,
            )
        grid = Tokens() if edit == "token" else Whole()
        estimate = ragged_sensitivity(
            entry(arm.model, route),
            Entrance.make(variables, variance),
            texts.buckets,
            Perturbation(grid, Gaussian(variance=1.0)),
            config.num_samples,
            embed=embedding(arm.model),
            **common,
        )
        return _described(estimate, Perturbation(grid, Gaussian(variance=variance)))


def _described(estimate: SensitivityEstimate, perturbation: Perturbation) -> SensitivityEstimate:
    """The estimate, which unit noise of e / σ gave, with what that does to the embeddings."""
    provenance = dataclasses.replace(estimate.provenance, perturbation=repr(perturbation))
    return dataclasses.replace(estimate, provenance=provenance)


def along(config: Config, arm: TextArm) -> dict[str, tuple[str, float]]:
    """Split and variance of each sensitivity that is measured along training, by field."""
    found = {"sensitivity": ("train", config.variances[0])}
    if not arm.in_full:
        return found
    other = {f"variance {v:g}": ("train", v) for v in config.variances[1:]}
    return found | other | {"validation": ("validation", config.variances[0])}


def train(config: Config, data: TextData, arm: TextArm, folder: RunFolder) -> TrainState:
    """Trains one model to its end, recording every evaluation; the state after the last epoch."""
    key = jax.random.fold_in(jax.random.key(config.seed), arm.stream)
    train_key, measure_key = jax.random.split(key)
    some = data.train.subset(np.arange(min(1000, len(data.train.labels))))

    def evaluate(epoch: int, variables: Any) -> Record:
        epoch_key = jax.random.fold_in(measure_key, epoch)
        record = {
            name: measure(
                *(config, arm, variables, data.along[split]), key=epoch_key, variance=variance
            ).summary()
            for name, (split, variance) in along(config, arm).items()
        }
        return record | {
            "train_accuracy": _accuracy(arm, variables, some),
            "test_accuracy": _accuracy(arm, variables, data.validation),
        }

    return study.follow(
        folder,
        arm.name,
        arm.label,
        BucketTrainer(
            arm.model, arm.recipe, config.epochs or 1, lengths=data.train.training_lengths
        ),
        jnp.asarray(data.train.padded),
        jnp.asarray(data.train.labels),
        key=train_key,
        every=config.evaluate_every or 1,
        evaluate=evaluate,
    )


def _accuracy(arm: TextArm, variables: Any, texts: Encoded) -> float:
    hits: Sequence[np.ndarray] = [
        correct(arm.model.apply, variables, b.tokens, texts.labels[b.example_ids], batch_size=100)
        for b in texts.buckets
    ]
    return float(np.concatenate(hits).mean())
