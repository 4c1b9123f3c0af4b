"""The pictures of the guide "What sensitivity is": `python -m tools.pictures` (make pictures).

Trains an MLP and a small ViT on scikit-learn's handwritten digits, real images inside a package,
and draws what one edit does and where the two are sensitive. Two minutes on two cores. What the
pictures show comes from these runs; no number on them is typed.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxsens
from jaxsens import data, figures
from jaxsens.models import MLP, ViTSmall
from jaxsens.training import Recipe, Trainer, TrainState

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
EPOCHS = 15
NOISE = jaxsens.Perturbation(jaxsens.Patches(2), jaxsens.Gaussian(variance=5.0))
MODELS = {
    "MLP": MLP(10, widths=(128,)),
    "ViT": ViTSmall(10, 2, depth=2, heads=4, hidden=128),
}


def trained(model: MLP | ViTSmall, x: np.ndarray, y: np.ndarray) -> TrainState:
    """The state of a model after a few epochs."""
    init_key, train_key = jax.random.split(jax.random.key(0))
    trainer = Trainer(model, Recipe("adam", 0.002, batch_size=50), EPOCHS)
    state = trainer.init(x, init_key)
    for _ in range(EPOCHS):
        state, _ = trainer.epoch(state, jnp.asarray(x), jnp.asarray(y), train_key)
    return state


def draw_edits(model: MLP, state: TrainState, x: np.ndarray, y: np.ndarray) -> Figure:
    """One image, and three edits of it: what the model sees, and what it says."""
    est = jaxsens.sensitivity(model.apply, state.variables, x, NOISE, key=jax.random.key(1))
    example = int(np.argsort(-est.per_example)[5])
    order = np.argsort(est.per_example_position[example])
    positions = [int(order[0]), int(order[len(order) // 2]), int(order[-1])]
    key = jax.random.key(2)
    edited = [np.asarray(NOISE(key, jnp.asarray(x[example]), position)) for position in positions]
    shown = np.stack([x[example], *edited])
    says = np.asarray(model.apply(state.variables, shown)).argmax(1)
    figure = Figure(figsize=(7.2, 2.2), layout="constrained", dpi=110)
    for axes, image, said, position in zip(
        figure.subplots(1, 4), shown, says, [None, *positions], strict=True
    ):
        axes.imshow(image[..., 0], cmap="gray_r", vmin=-1, vmax=1)
        axes.set(xticks=np.arange(1.5, 7, 2), yticks=np.arange(1.5, 7, 2))
        axes.grid(color="0.75", linewidth=0.6)
        axes.tick_params(length=0, labelbottom=False, labelleft=False)
        if position is None:
            axes.set_title(f"a “{y[example]}”", fontsize=10)
        else:
            row, column = divmod(position, 4)
            axes.add_patch(_frame(2 * column - 0.5, 2 * row - 0.5))
            axes.set_title(f"window {position} edited", fontsize=10)
        changed = said != says[0]
        axes.set_xlabel(
            f"model says {said}" + (": changed" if changed else ""),
            color="#b3261e" if changed else "black",
        )
    return figure


def draw_places(states: dict[str, TrainState], x: np.ndarray, y: np.ndarray) -> Figure:
    """Where in three images both models are sensitive."""
    chosen = [int(np.flatnonzero(y == digit)[0]) for digit in (0, 3, 9)]
    maps = {}
    for name, model in MODELS.items():
        est = jaxsens.sensitivity(
            model.apply, states[name].variables, x[chosen], NOISE, 200, key=jax.random.key(3)
        )
        maps[name] = est.per_example_position.reshape(len(chosen), 4, 4)
    return figures.patch_heatmaps(x[chosen], maps, row_labels=[str(y[i]) for i in chosen])


def _frame(left: float, top: float):
    from matplotlib.patches import Rectangle

    return Rectangle((left, top), 2, 2, fill=False, edgecolor="#b3261e", linewidth=2)


def main() -> int:
    """Draws all pictures."""
    x, y = data.load("digits", "train")
    states = {name: trained(model, x, y) for name, model in MODELS.items()}
    FOLDER.mkdir(exist_ok=True)
    edits = draw_edits(MODELS["MLP"], states["MLP"], x[:300], y[:300])
    edits.savefig(FOLDER / "edits.png", metadata={"Software": None})
    places = draw_places(states, x, y)
    places.savefig(FOLDER / "places.png", dpi=90, metadata={"Software": None})
    for file in sorted(FOLDER.glob("*.png")):
        print(f"{file}: {file.stat().st_size // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
