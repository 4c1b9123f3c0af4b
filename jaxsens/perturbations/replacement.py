"""Replacing a window: by a number, by the example's mean, by the example blurred, by an array.

    x'[window τ] = r(x)[window τ],    x' = x elsewhere

where r(x), the reference, has the shape of x: zeros, its mean, a blurred copy, or what is given. It
is what other libraries call a baseline, and the edit of occlusion maps (`jaxsens.occlusion`).

Assumption: the reference means "nothing to see here" to the model. A model may take grey for
something too; which reference is used is part of the result.
"""

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, Shaped

from jaxsens.core.scalars import as_real, noise_size, one_line
from jaxsens.perturbations.grids import Position, Shape

_MADE_OF_THE_EXAMPLE = ("mean", "blur")


@dataclass(frozen=True, eq=False, repr=False)
class Replace:
    """Replaces the window by the same window of a reference; there is no randomness.

        x'[window τ] = r(x)[window τ]

    Args:
      value: what the reference is: a number (0 by default; of token ids, the id of a mask); "mean",
        the example's own mean over its positions, channel by channel; "blur", the example blurred
        by a Gaussian along its positions; or an array that broadcasts to the shape of an example.
      sigma: of the blur, in pixels or tokens; default the side of the window.

    Raises:
      ValueError: there is no such reference, or a number is not finite.

    >>> from jaxsens import Patches, Perturbation
    >>> x = jnp.arange(16.0).reshape(4, 4, 1)
    >>> grey = Perturbation(Patches(2), Replace("mean"))
    >>> grey.replacement(0, x, 3)[..., 0].tolist()
    [[7.5, 7.5], [7.5, 7.5]]
    """

    value: float | str | np.ndarray = 0.0
    sigma: float | None = None

    def __init__(self, value: Any = 0.0, sigma: float | None = None) -> None:
        object.__setattr__(self, "value", _checked_value(value))
        if sigma is not None:
            sigma = noise_size("Replace", "sigma", sigma)
            if not isinstance(value, str) or value != "blur" or not sigma:
                raise ValueError(
                    'Replace takes sigma > 0, of the blur, with "blur" alone; got '
                    f"Replace({one_line(value)}, sigma={sigma:g})"
                )
        object.__setattr__(self, "sigma", sigma)

    def __call__(self, key: PRNGKeyArray, window: Array, /) -> Array:
        """The window of a number or of an array of its own shape; others need the example."""
        if isinstance(self.value, str):
            raise ValueError(f"{self!r} needs the whole example: use Perturbation(grid, {self!r})")
        return self.reference(window, window.shape)

    def num_replacements(self, window_shape: Shape) -> int:
        """One: the reference's."""
        return 1

    def replacement(self, index: Position, window: Array) -> Array:
        """As `__call__`."""
        return self(None, window)  # type: ignore[arg-type]  # there is no randomness

    def reference(self, x: Shaped[Array, "..."], window_shape: Shape) -> Shaped[Array, "..."]:
        """r(x), of the shape and dtype of one example.

        Args:
          x: one example.
          window_shape: of the grid: where a window is shorter than the example, the axis runs over
            positions; the others are channels.

        Raises:
          ValueError: the reference does not fit examples of this shape and dtype.
        """
        if not isinstance(self.value, str):
            return jnp.broadcast_to(self._cast(x.dtype, x.shape), x.shape)
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise ValueError(f"{self!r} needs floating-point inputs; got {x.dtype}")
        sides = zip(window_shape, x.shape, strict=True)
        axes = tuple(axis for axis, (side, length) in enumerate(sides) if side < length)
        if not axes:
            raise ValueError(
                f"{self!r} needs windows that are smaller than an example; got windows and "
                f"examples of shape {tuple(x.shape)}"
            )
        if self.value == "mean":
            return jnp.broadcast_to(x.mean(axis=axes, keepdims=True), x.shape)
        for axis in axes:
            kernel = _gaussian(x.shape[axis], self.sigma or float(window_shape[axis]))
            blurred = jnp.tensordot(x, jnp.asarray(kernel, x.dtype), axes=((axis,), (1,)))
            x = jnp.moveaxis(blurred, -1, axis)
        return x

    def _cast(self, dtype: Any, shape: Shape) -> Array:
        value = np.asarray(self.value)
        if not jnp.issubdtype(dtype, jnp.inexact) and (value != np.floor(value)).any():
            raise ValueError(f"{self!r} cannot be the value of {dtype} inputs: give whole numbers")
        try:
            fits = np.broadcast_shapes(value.shape, shape) == tuple(shape)
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                f"the value of {self!r} does not broadcast to examples of shape {tuple(shape)}"
            )
        return jnp.asarray(value.astype(dtype))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Replace) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[Any, ...]:
        if isinstance(self.value, np.ndarray):
            array = np.ascontiguousarray(self.value)
            return array.dtype.str, array.shape, array.tobytes(), self.sigma
        return self.value, self.sigma

    def __repr__(self) -> str:
        if isinstance(self.value, np.ndarray):
            # With a digest, so that estimates by different arrays are not taken for one another.
            digest = hashlib.sha256(np.ascontiguousarray(self.value).tobytes()).hexdigest()[:8]
            sides = ",".join(map(str, self.value.shape))
            return f"Replace({self.value.dtype}[{sides}] {digest})"
        if isinstance(self.value, str):
            return f"Replace({self.value!r}{f', sigma={self.sigma:g}' if self.sigma else ''})"
        return f"Replace({self.value:g})"


def _checked_value(value: Any) -> float | str | np.ndarray:
    if isinstance(value, str):
        if value in _MADE_OF_THE_EXAMPLE:
            return value
    elif (number := as_real(value)) is not None:
        if math.isfinite(number):
            return number
    elif (array := _as_array(value)) is not None:
        return array
    raise ValueError(
        'Replace needs a value that is a finite number, an array of such, "mean" or "blur"; '
        f"got {one_line(value)}"
    )


def _as_array(value: Any) -> np.ndarray | None:
    """A copy of an array of finite numbers, or None."""
    if isinstance(value, np.ma.MaskedArray) or not hasattr(value, "__len__"):
        return None
    try:
        array = np.array(value)
        if array.dtype.kind not in "biuf" or not array.size or not np.isfinite(array).all():
            return None
    except (TypeError, ValueError):
        return None
    array.flags.writeable = False
    return array


def _gaussian(length: int, sigma: float) -> np.ndarray:
    """(length, length): row i weighs all places by their distance from i, and sums to 1."""
    places = np.arange(length)
    weights = np.exp(-0.5 * ((places[:, None] - places[None]) / sigma) ** 2)
    return weights / weights.sum(axis=1, keepdims=True)
