"""Generated colour images of ten shapes, of CIFAR-10's size, that need no file and no network.

For a quick look at what needs 32×32 colour images; nothing measured on them says anything about
photographs. An image is one shape, anywhere, of any size, turned a little, in a random colour on a
random colour gradient, with sensor noise. All randomness comes from the raw 64-bit stream of PCG64,
which NumPy promises to keep (NEP 19); where platforms round sines differently, a pixel may differ
by one grey level.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, UInt8

from jaxsens.data.dataset import DatasetSpec, LabelledImages

SPEC = DatasetSpec("shapes", "Generated shapes", (32, 32, 3), 10, 2_000, 500)

_SIDE = 32
#: Each pixel is the mean of this many squared, so that edges are smooth.
_FINE = 2
_SEEDS = {"train": 0, "test": 1}


Plane = Float[np.ndarray, "n side side"]


def _square(u: Plane, v: Plane) -> Plane:
    return np.maximum(abs(u), abs(v))


def _diamond(u: Plane, v: Plane) -> Plane:
    return abs(u) + abs(v)


#: Where each shape is drawn, around the origin and of radius about 1.
_SHAPES: tuple[Callable[[Plane, Plane], Bool[np.ndarray, "n side side"]], ...] = (
    lambda u, v: np.hypot(u, v) < 1,
    lambda u, v: abs(np.hypot(u, v) - 0.8) < 0.2,
    lambda u, v: _square(u, v) < 0.85,
    lambda u, v: abs(_square(u, v) - 0.7) < 0.2,
    lambda u, v: (v < 0.8) & (v > 2 * abs(u) - 1),
    lambda u, v: (_square(u, v) < 0.95) & (np.minimum(abs(u), abs(v)) < 0.3),
    lambda u, v: (_square(u, v) < 0.95) & (np.minimum(abs(u + v), abs(u - v)) < 0.4),
    lambda u, v: abs(_diamond(u, v) - 0.95) < 0.3,
    lambda u, v: (_square(u, v) < 0.9) & (np.floor((v + 1) * 2.5) % 2 == 0),
    lambda u, v: (_square(u, v) < 0.9) & ((np.floor(2 * u + 2) + np.floor(2 * v + 2)) % 2 == 0),
)


def make(split: str, spec: DatasetSpec) -> LabelledImages:
    """Returns the split's images, uint8 in 0..255, and labels, each class equally often.

    Args:
      split: "train" or "test", made from different seeds.
      spec: the dataset's facts.
    """
    n, num_classes = spec.num_examples(split), len(_SHAPES)
    labels = np.arange(n) % num_classes
    # Each image has its own stretch of the stream: place, size, turn, colours, then noise.
    raw = np.random.PCG64(_SEEDS[split]).random_raw((n, 14 + _SIDE * _SIDE * 3))
    uniform = (raw >> np.uint64(40)).astype(np.float32) / np.float32(2**24)
    images = np.empty((n, _SIDE, _SIDE, 3), np.uint8)
    for label in range(num_classes):
        images[label::num_classes] = _draw(label, uniform[label::num_classes])
    return images, labels


def _draw(label: int, uniform: Float[np.ndarray, "n k"]) -> UInt8[np.ndarray, "n side side 3"]:
    row, column, size, turn, slope_angle = uniform[:, :5, None, None].transpose(1, 0, 2, 3)
    fine = (np.arange(_SIDE * _FINE, dtype=np.float32) + 0.5) / _FINE
    x, y = fine[None, None, :] - (11 + 10 * column), fine[None, :, None] - (11 + 10 * row)
    radius, angle = 6 + 5 * size, 0.5 * (turn - 0.5)
    u = (np.cos(angle) * x + np.sin(angle) * y) / radius
    v = (np.cos(angle) * y - np.sin(angle) * x) / radius
    drawn = _SHAPES[label](u, v).reshape(-1, _SIDE, _FINE, _SIDE, _FINE)
    cover = drawn.mean(axis=(2, 4), dtype=np.float32)[..., None]

    across = np.linspace(-0.5, 0.5, _SIDE, dtype=np.float32)
    direction = 2 * np.pi * slope_angle
    slope = np.cos(direction) * across[None, None, :] + np.sin(direction) * across[None, :, None]
    ground, tint, colour = uniform[:, None, None, 5:14].reshape(-1, 3, 1, 1, 3).swapaxes(0, 1)
    # A shape that could hardly be seen on its ground is drawn in another colour.
    faint = abs(colour - ground).max(axis=-1, keepdims=True) < 0.3
    colour = np.where(faint, (ground + 0.5) % 1, colour)
    ground = ground + 0.4 * (tint - 0.5) * slope[..., None]
    noise = 0.1 * (uniform[:, 14:].reshape(-1, _SIDE, _SIDE, 3) - 0.5)
    image = ground * (1 - cover) + colour * cover + noise
    return np.round(255 * np.clip(image, 0, 1)).astype(np.uint8)
