"""Models of other runs, untrained and trained: the worst change of one word or patch, and random.

What may move is one layer-normed embedding of a text, or one patch of an image, inside a ball as
large as the root mean square norm of such windows: the same size as a word. What is measured is the
relative change of the logits, and whether the prediction can be flipped.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsens
from jaxsens import Ball, Patches, Perturbation, Tokens, label_flip, relative_l2
from jaxsens.models import TextModel
from jaxsens.reporting.cached import cached_stage
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.text.special_ids import PAD_ID
from jaxsens.training.checkpoints import Checkpoints

from .._common.reuse import copy_checkpoints
from .config import Config
from .loading import ReusedModel, ReusedRun
from .measuring import Row
from .texts import Pool

STATES = ("untrained", "trained")


def measure_models(config: Config, runs: tuple[ReusedRun, ...], folder: RunFolder) -> list[Row]:
    """One row for each model, untrained and trained."""
    rows = []
    for run in runs:
        for model in run.models:
            for state in STATES:
                place = {"run": run.title, "model": model.name, "label": model.label}
                measure = functools.partial(_measure, config, run, model, state, folder)
                found = cached_stage(folder, f"model: {model.name}, {state}", measure)
                rows.append(place | {"state": state} | found)
    return rows


def pools(runs: tuple[ReusedRun, ...], folder: RunFolder) -> list[Pool]:
    """The texts of each language run in the embeddings of its first model, trained."""
    found = []
    for run in runs:
        model = run.models[0].trainer.model
        if not isinstance(model, TextModel):
            continue
        variables = variables_of(run, run.models[0], "trained", folder)
        embed = functools.partial(_embedded, model, variables)
        tokens = [ids[ids != PAD_ID] for ids in run.x]
        width = int(jax.eval_shape(embed, run.x[:1]).shape[-1])
        name = f"{run.title}, embeddings of {run.models[0].label}"
        found.append(Pool(name, tokens, 2 * (run.y == 1).astype(np.int32) - 1, width, embed))
    return found


def variables_of(run: ReusedRun, model: ReusedModel, state: str, folder: RunFolder) -> Any:
    """The weights before the first or after the last epoch.

    Raises:
      ValueError: the run has no checkpoint of the last epoch.
    """
    train_key, _ = jax.random.split(jax.random.fold_in(jax.random.key(run.seed), model.key_index))
    init_key, _ = jax.random.split(train_key)
    # As many examples as make one step; the weights depend on the first alone.
    like = model.trainer.init(_enough(model, run.x), init_key)
    if state == "untrained":
        return like.variables
    copy_checkpoints(run.folder, folder, model.name)
    with Checkpoints(folder.checkpoints / model.name) as checkpoints:
        if model.trainer.epochs not in checkpoints.epochs():
            raise ValueError(
                f"{run.folder} has no checkpoint of {model.name} after its last epoch, "
                f"{model.trainer.epochs}: let that run come to its end first"
            )
        return checkpoints.restore(model.trainer.epochs, like=like).variables


def _enough(model: ReusedModel, x: np.ndarray) -> np.ndarray:
    return np.resize(x, (model.trainer.recipe.batch_size, *x.shape[1:]))


def _measure(
    config: Config, run: ReusedRun, model: ReusedModel, state: str, folder: RunFolder
) -> Row:
    network = model.trainer.model
    variables = variables_of(run, model, state, folder)
    grid: Tokens | Patches
    options: dict[str, Any] = {"key": jax.random.key(config.seed)}
    if isinstance(network, TextModel):
        ids = _long_texts(run.x, config)
        mask = ids != PAD_ID
        x = np.asarray(_embedded(network, variables, ids))
        apply_fn, grid = _from_embeddings(network), Tokens()
        norms = np.linalg.norm(x, axis=-1)[mask]
        num_places = int(mask.sum(axis=1).min())
        options["context"] = mask
    else:
        x = np.asarray(run.x[: config.num_measured], np.float32)
        apply_fn, grid = network.apply, Patches(run.patch or 1)
        num_places = Perturbation(grid, Ball(1.0)).num_positions(x.shape[1:])
        norms = np.sqrt(np.square(x).sum(axis=(1, 2, 3)) / num_places)
    places = np.unique(np.linspace(0, num_places - 1, config.num_places).round().astype(int))
    radius = float(np.sqrt(np.mean(np.square(norms))))
    ball = Perturbation(grid, Ball(radius))
    chosen = np.zeros((len(x), ball.num_positions(x.shape[1:])), bool)
    chosen[:, places] = True
    search: dict[str, Any] = {"num_starts": config.num_starts, "num_steps": config.num_steps}
    found: Row = {"radius": radius, "places": places.tolist()}
    for metric in (relative_l2, label_flip):
        common = {**options, "metric": metric}
        worst = jaxsens.worst_case(
            apply_fn, variables, x, ball, positions=places, **search, **common
        )
        random = jaxsens.sensitivity(
            apply_fn, variables, x, ball, config.num_random, mask=chosen, **common
        )
        found[metric.name] = {
            "worst": worst.changes.tolist(),
            "agreement": float(np.mean(worst.agreement)),
            "random": random.per_example.tolist(),
        }
    return found


def _long_texts(x: np.ndarray, config: Config) -> np.ndarray:
    """Texts with enough words for all places, cut to the longest of them."""
    lengths = (x != PAD_ID).sum(axis=1)
    rows = np.flatnonzero(lengths >= min(config.num_places, lengths.max()))[: config.num_measured]
    return x[rows, : lengths[rows].max()]


@functools.partial(jax.jit, static_argnums=0)
def _embedded(model: TextModel, variables: Any, ids: Any) -> Any:
    return model.apply(variables, jnp.asarray(ids), method="embed")


@functools.lru_cache(maxsize=64)
def _from_embeddings(model: TextModel) -> Any:
    """One function object for each model, so that nothing is compiled twice."""

    def apply_fn(variables: Any, e: Any, mask: Any) -> Any:
        return model.apply(variables, e, mask, method="from_embeddings")

    return apply_fn
