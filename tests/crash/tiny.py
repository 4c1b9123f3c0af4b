"""The smallest experiment that leaves every kind of file: takes the place of vision's functions."""

import dataclasses
import json
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxsens.reporting.results import Claim, Figure, Results
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


def run(config: Any, data: Points, folder: RunFolder) -> Results:
    """Trains, records, keeps a file, computes a stage, draws and concludes."""
    from jaxsens.experiments._common import study

    def evaluate(epoch: int, variables: Any) -> dict[str, Any]:
        return {"weights": np.asarray(variables["params"]["Dense_0"]["kernel"]).ravel().tolist()}

    trainer = Trainer(Linear(), Recipe("adam", 0.01, batch_size=4), EPOCHS)
    state = study.follow(
        *(folder, "linear", "linear", trainer, jnp.asarray(data.x), jnp.asarray(data.y)),
        key=jax.random.key(config.seed),
        every=2,
        evaluate=evaluate,
    )
    weights = np.asarray(state.variables["params"]["Dense_0"]["kernel"]).ravel().tolist()
    kept = study.cached(folder, "estimates/kept.json", lambda: json.dumps(weights), json.loads)
    norm = study.stage(folder, "norm", lambda: float(np.linalg.norm(kept)))
    write_atomic(folder.figures / "figure.png", b"a picture")
    return Results(
        experiment="vision",
        title="Crash test",
        summary="",
        claims=(Claim("it ends", "", "", True),),
        tables=(),
        figures=(Figure("figures/figure.png", ""),),
        values={"records": [r["weights"] for r in study.records_of(folder, "linear")]}
        | {"weights": weights, "norm": norm},
        config=dataclasses.asdict(config),
        environment={},
        seconds=study.seconds(folder),
    )
