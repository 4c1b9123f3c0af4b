"""What a cell of the benchmark measures, and what a method must offer: numpy only.

Weights and inputs are made once and handed to every method as numpy arrays in Flax's names and
layouts (channels last), so that all methods measure the same function at the same points.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Weights = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Setting:
    """A model, and the window edit it is measured with.

    Attributes:
      architecture: class in `jaxsens.models` and in `benchmarks.torch_vision` or `torch_text`.
      sizes: arguments of both classes.
      shape: of one example, channels last.
      window: of the edit, of the same rank; windows tile the example in row-major order.
      variance: σ² of the Gaussian noise that is added to a window.
      gain: multiplies the initial kernels. An untrained model may hardly look at its input; it must
        change its mind now and then, or the check of the sensitivities says nothing.
      num_samples: S, unless the command line says otherwise.
      num_images: that one timed run measures, unless the command line says otherwise: a run should
        take seconds.
    """

    architecture: str
    sizes: dict[str, Any]
    shape: tuple[int, ...] = (28, 28, 1)
    window: tuple[int, ...] = (4, 4, 1)
    variance: float = 5.0
    gain: float = 3.0
    num_samples: int = 5
    num_images: int = 100

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Setting":
        """The setting whose `asdict` went through JSON, which knows no tuples."""
        sizes = {name: _hashable(value) for name, value in record["sizes"].items()}
        return cls(**{name: _hashable(value) for name, value in record.items()} | {"sizes": sizes})

    @property
    def num_positions(self) -> int:
        """T."""
        return math.prod(self.shape) // math.prod(self.window)

    @property
    def takes_mask(self) -> bool:
        """Whether an example is a text (T, d), whose model is told which tokens are real: all."""
        return len(self.shape) == 2

    @property
    def sigma(self) -> float:
        """σ of the noise."""
        return math.sqrt(self.variance)


@dataclass(frozen=True)
class Workload:
    """One measurement: the same for every method.

    Attributes:
      setting: the model and the edit.
      x: (n, *shape) inputs.
      weights: the model's variables by their path in Flax, as in "params/Dense_0/kernel".
      num_samples: S.
      batch: examples that a loop over positions and draws puts through the model together.
    """

    setting: Setting
    x: np.ndarray
    weights: Weights
    num_samples: int
    batch: int

    def save(self, path: Path) -> None:
        """Writes the arrays to `path`."""
        save_arrays(path, {"x": self.x, **self.weights})

    def spec(self) -> dict[str, Any]:
        """All but the arrays, ready for JSON."""
        return {
            "setting": asdict(self.setting),
            "num_samples": self.num_samples,
            "batch": self.batch,
        }

    @classmethod
    def load(cls, path: Path, spec: Mapping[str, Any]) -> "Workload":
        """The workload that `save` and `spec` described."""
        weights = load_arrays(path)
        return cls(
            setting=Setting.from_json(spec["setting"]),
            x=weights.pop("x"),
            weights=weights,
            num_samples=spec["num_samples"],
            batch=spec["batch"],
        )


def save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Writes named arrays to an npz file."""
    np.savez(path, **arrays)


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays that `save_arrays` wrote."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class Method(Protocol):
    """One way to measure a workload, warm or cold; made by `factory(workload, num_threads)`."""

    #: What it ran on.
    device: str

    def tune(self, x: np.ndarray) -> None:
        """Chooses what can be chosen by trying it on `x`, before anything is timed."""

    def logits(self, x: np.ndarray) -> np.ndarray:
        """(n, C) of clean inputs."""

    def flips(self, x: np.ndarray, seed: int) -> np.ndarray:
        """(n, T): how many of the S draws at each position changed the prediction."""

    def peak_device_bytes(self) -> int | None:
        """Most memory used on an accelerator so far; None on a CPU."""

    def matmul(self, size: int) -> Callable[[], Any]:
        """A call that multiplies two size×size matrices and returns when it is done."""

    def probe(self, x: np.ndarray) -> dict[str, float]:
        """What else the method can say of itself after the timed runs, by column."""
