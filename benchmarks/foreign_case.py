"""What a model of the suite "foreign" is, and what its modules of models share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class Foreign:
    """A model, what it takes, and what is edited.

    Attributes:
      model: a function and its parameters.
      x: (n, …) inputs.
      window: the sides of a patch, or 1 for a token.
      sigma: of the noise.
      channels: where an image has them, "first" or "last"; None for texts.
      context: what else the model takes.
    """

    model: tuple[Callable, Any]
    x: Any
    window: int
    sigma: float
    channels: Literal["first", "last"] | None = None
    context: Any = None


@dataclass(frozen=True)
class Case:
    """How a model is made.

    Attributes:
      package: what must be installed.
      make: makes it.
    """

    package: str
    make: Callable[[], Foreign]


#: By the name of the row.
Cases = dict[str, Case]
#: Examples of each model; tokens of a text and width of each.
NUM, TOKENS, WIDTH = 2, 32, 64


def case(cases: Cases, name: str, package: str, *arguments: Any) -> Callable:
    """Makes the decorated function, with these arguments, the maker of a row: the lowest first."""

    def register(make: Callable[..., Foreign]) -> Callable[..., Foreign]:
        cases[name] = Case(package, lambda: make(*arguments))
        return make

    return register


def images(*shape: int) -> np.ndarray:
    """Normal numbers, (n, *shape)."""
    return np.random.default_rng(0).normal(size=(NUM, *shape)).astype(np.float32)


def texts(width: int = WIDTH) -> np.ndarray:
    """Normal embeddings, (n, T, width)."""
    return images(TOKENS, width)


def padding() -> np.ndarray:
    """Two texts, the second with a quarter of padding."""
    return (np.arange(TOKENS) < np.array([[TOKENS], [TOKENS * 3 // 4]])).astype(np.int32)


def lively(params: Any, factor: float) -> Any:
    """Larger kernels, and small numbers for zeros that heads and residual branches begin with."""
    import jax

    draw = np.random.default_rng(0).normal

    def larger(leaf: Any) -> Any:
        if not np.any(leaf):
            return (0.1 * draw(size=leaf.shape)).astype(leaf.dtype)
        return leaf * factor if leaf.ndim > 1 else leaf

    return jax.tree.map(larger, params)


def adapted(adapter: str, model: Any, *arguments: Any, **options: Any) -> tuple[Callable, Any]:
    """What one of `jaxsens.adapters` makes of a model."""
    from jaxsens import adapters

    apply_fn, params = getattr(adapters, adapter)(model, *arguments, **options)
    return apply_fn, params
