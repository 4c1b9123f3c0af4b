"""The side of jaxsens in the suite "training", and the weights and order that all sides share.

python -m benchmarks.jaxsens_training JOB.json     (started by `benchmarks.training`)
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from benchmarks.jaxsens_methods import make_model, random_weights, variables
from benchmarks.training_cell import RATE, Advance, Job
from benchmarks.workload import Setting, save_arrays
from jaxsens.training import Recipe, Trainer
from jaxsens.training.steps import order_of_epoch


class FromEmbeddings(nn.Module):
    """A text model from its embeddings on, told that every token is real."""

    text: nn.Module

    @nn.compact
    def __call__(self, e: Float[Array, "n T d"], *, train: bool = False) -> Float[Array, "n K"]:
        """Logits."""
        return self.text.from_embeddings(e, jnp.ones(e.shape[:2], bool), train=train)


def training(job: Job) -> Advance:
    """Stretches of training by `Trainer.advance`, each an epoch."""
    network = without_dropout(make_model(job.setting))
    tree = variables(job.weights)
    if job.setting.takes_mask:
        network, tree = FromEmbeddings(network), {"params": {"text": tree["params"]}}
    recipe = Recipe("sgd", RATE, batch_size=job.order.shape[1])
    trainer = Trainer(network, recipe, epochs=1)
    x, y, key = jnp.asarray(job.x), jnp.asarray(job.y), order_key(job.seed)
    state = replace(trainer.init(x, key), variables=jax.tree.map(jnp.asarray, tree))

    def advance() -> np.ndarray:
        nonlocal state
        state, losses = trainer.advance(state, x, y, key, 0, len(job.order))
        return losses

    return advance


def without_dropout(model: nn.Module) -> nn.Module:
    """PyTorch's networks have none, and its random numbers would be others."""
    return model.copy(dropout=0.0) if hasattr(model, "dropout") else model


def order_key(seed: int) -> jax.Array:
    """What `Trainer` shuffles by."""
    return jax.random.fold_in(jax.random.key(seed), 1)


def main(path: str) -> None:
    """Writes the weights of the job in the file `path`, and which examples each step takes."""
    job = json.loads(Path(path).read_text())
    setting = replace(Setting.from_json(job["setting"]), gain=1.0)
    num_examples = job["steps"] * job["batch"]
    _, order = order_of_epoch(num_examples, job["batch"], order_key(job["seed"]), jnp.int32(0))
    arrays = random_weights(setting, job["seed"]) | {"order": np.asarray(order)}
    save_arrays(Path(job["arrays"]), arrays)


if __name__ == "__main__":
    main(sys.argv[1])
