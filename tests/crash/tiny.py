"""The smallest experiment that leaves every kind of file: takes the place of vision's functions."""

import dataclasses
import json
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxsens.reporting.cached import cached_file, cached_stage
from jaxsens.reporting.records import records_of
from jaxsens.reporting.results import Claim, Figure, Findings
from jaxsens.reporting.run_folder import RunFolder, write_atomic
from jaxsens.training.trainer import Recipe, Trainer

EPOCHS = 3


class Linear(nn.Module):
    """One layer."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """Logits."""
        return nn.Dense(2)(x)


@dataclasses.dataclass(frozen=True)
class Points:
    """A few points with labels."""

    x: np.ndarray
    y: np.ndarray


def load(config: Any, data_dir: Any) -> Points:
    """The points."""
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)
    return Points(x, (x.sum(axis=1) > 0).astype(np.int32))


def run(config: Any, data: Points, folder: RunFolder) -> Findings:
    """Trains, records, keeps a file, computes a stage, draws and concludes."""
    from jaxsens.experiments._common.training import train_and_record

    def evaluate(epoch: int, variables: Any) -> dict[str, Any]:
        return {"weights": np.asarray(variables["params"]["Dense_0"]["kernel"]).ravel().tolist()}

    trainer = Trainer(Linear(), Recipe("adam", 0.01, batch_size=4), EPOCHS)
    state = train_and_record(
        *(folder, "linear", "linear", trainer, jnp.asarray(data.x), jnp.asarray(data.y)),
        key=jax.random.key(config.seed),
        every=2,
        evaluate=evaluate,
    )
    weights = np.asarray(state.variables["params"]["Dense_0"]["kernel"]).ravel().tolist()
    stored = cached_file(folder, "estimates/kept.json", lambda: json.dumps(weights), json.loads)
    norm = cached_stage(folder, "norm", lambda: float(np.linalg.norm(stored)))
    write_atomic(folder.figures / "figure.png", b"a picture")
    return Findings(
        title="Crash test",
        summary="",
        claims=(Claim("it ends", "", "", True),),
        tables=(),
        figures=(Figure("figures/figure.png", ""),),
        values={"records": [r["weights"] for r in records_of(folder, "linear")]}
        | {"weights": weights, "norm": norm},
    )
