"""Edits: what happens to a window.

An edit is a pure function `edit(key, window) -> window`; a new noise is a new edit.

Assumption: an edit depends on nothing but its key and the window (`Donor` also sees the same window
of another example). An edit with hidden state would be traced once and silently give the same draw
every time.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, Shaped

from jaxsens.core.scalars import MAX_INT32, as_real, as_whole, noise_size, one_line
from jaxsens.perturbations.grids import Position, Shape


@runtime_checkable
class Edit(Protocol):
    """`edit(key, window) -> window` of the same shape and dtype.

    Implementations are hashable: frozen dataclasses, or functions.

    >>> def halve(key, window):
    ...     return window / 2
    >>> isinstance(halve, Edit), halve(jax.random.key(0), np.float32(3.0)).item()
    (True, 1.5)
    """

    def __call__(self, key: PRNGKeyArray, window: Array, /) -> Array:
        """A random new window."""


@runtime_checkable
class FiniteEdit(Protocol):
    """An edit that draws uniformly from finitely many replacements, which can be enumerated.

    With `num_samples="all"` a measurement takes each of them once.

    >>> isinstance(Resample(5), FiniteEdit), Resample(5).num_replacements((1,))
    (True, 5)
    """

    def num_replacements(self, window_shape: Shape) -> int:
        """How many replacements a window of this shape has."""

    def replacement(self, index: Position, window: Array) -> Array:
        """Replacement number `index`, from 0, of the window."""


@runtime_checkable
class CheckedEdit(Protocol):
    """An edit that has no meaning for some inputs, and says so before anything is measured.

    >>> Resample(5).check(np.array([0, 4, 7]))
    Traceback (most recent call last):
    ValueError: Resample(vocabulary=5, first=0) needs ids from 0 to 4; got x with ids from 0 to ...
    """

    def check(self, values: Shaped[np.ndarray, "..."]) -> None:
        """Raises ValueError for inputs that the edit does not understand."""


@runtime_checkable
class ReferencedEdit(Protocol):
    """An edit that puts the same window of a reference there, made of the whole example.

    >>> from jaxsens import Replace
    >>> Replace("mean").reference(jnp.array([[1.0, 4.0], [3.0, 0.0]]), (1, 2)).tolist()
    [[2.0, 2.0], [2.0, 2.0]]
    """

    def reference(self, x: Array, window_shape: Shape) -> Array:
        """The reference, of the shape and dtype of one example `x`."""


@dataclass(frozen=True)
class Gaussian:
    """Adds independent Gaussian noise to every entry of the window.

        window + σ·ξ,    ξ ~ N(0, I)

    As a noise on weights (`sharpness`) it adds σ·ξ to every selected weight.

    Args:
      sigma: σ, the standard deviation; give this or `variance`.
      variance: σ².

    Raises:
      ValueError: both or none are given, or the number is negative or not finite.

    >>> Gaussian(variance=4.0).sigma
    2.0
    """

    sigma: float | None = None
    variance: float | None = None

    def __post_init__(self):
        if (self.sigma is None) == (self.variance is None):
            raise ValueError(
                "Gaussian takes one of sigma= and variance=; "
                f"got sigma={one_line(self.sigma)}, variance={one_line(self.variance)}"
            )
        if self.variance is None:
            sigma = noise_size("Gaussian", "sigma", self.sigma)
            # A product, because a power that overflows raises an error of its own.
            variance = noise_size("Gaussian", "variance, sigma²,", sigma * sigma)
        else:
            variance = noise_size("Gaussian", "variance", self.variance)
            sigma = math.sqrt(variance)
        object.__setattr__(self, "sigma", sigma)
        object.__setattr__(self, "variance", variance)

    def __call__(self, key: PRNGKeyArray, window: Array, /) -> Array:
        """Window + σ·ξ, ξ ~ N(0, I)."""
        if not jnp.issubdtype(window.dtype, jnp.floating):
            raise ValueError(f"Gaussian noise needs floating-point inputs; got {window.dtype}")
        # Drawn flat: the same numbers, and XLA on a CPU compiles them up to three times faster.
        noise = jax.random.normal(key, (window.size,), window.dtype).reshape(window.shape)
        return window + jnp.asarray(self.sigma, window.dtype) * noise

    def __repr__(self) -> str:
        return f"Gaussian(sigma={self.sigma:.6g}, variance={self.variance:.6g})"


@dataclass(frozen=True)
class ScatteredPixels:
    """Adds noise to all channels of random pixels of an (H, W, C) window.

    Pixels are drawn with replacement, and one that is drawn twice gets one noise. With `Whole()`
    this is what the paper's released code does instead of editing a patch of √count × √count
    pixels. That code draws one set of pixels for a whole batch; here every image has its own, which
    changes no mean and makes the randomness of the pixels part of the standard error.

    Args:
      count: how many pixels are drawn.
      noise: the edit of the drawn pixels.

    Raises:
      ValueError: `count` is no whole number from 1 on, or `noise` is no edit.

    >>> edit = ScatteredPixels(count=3, noise=Gaussian(sigma=1.0))
    >>> edited = edit(jax.random.key(0), jnp.zeros((8, 8, 1)))
    >>> 1 <= int((edited != 0).sum()) <= 3
    True
    """

    count: int
    noise: Gaussian

    def __post_init__(self):
        count = as_whole(self.count)
        if count is None or not 1 <= count <= MAX_INT32:
            raise ValueError(f"ScatteredPixels needs count >= 1; got {one_line(self.count)}")
        if isinstance(self.noise, type) or not callable(self.noise):
            raise ValueError(f"ScatteredPixels needs noise=Gaussian(…); got {one_line(self.noise)}")
        object.__setattr__(self, "count", count)

    def __call__(self, key: PRNGKeyArray, window: Array, /) -> Array:
        """The window with noise on at most `count` pixels."""
        if window.ndim != 3:
            raise ValueError(f"ScatteredPixels needs (H, W, C) windows; got {window.shape}")
        place_key, noise_key = jax.random.split(key)
        pixels = window.shape[:2]
        drawn = jax.random.randint(place_key, (self.count,), 0, math.prod(pixels))
        chosen = jnp.zeros(math.prod(pixels), bool).at[drawn].set(True).reshape(*pixels, 1)
        return jnp.where(chosen, self.noise(noise_key, window), window)


@dataclass(frozen=True)
class Resample:
    """Replaces a token by one drawn uniformly from first … vocabulary - 1, itself included.

    Integer windows hold a token id; floating-point windows are one-hot rows of that width.

    Args:
      vocabulary: the number of ids.
      first: the first id that may be drawn: those below it, such as padding, are special.

    Raises:
      ValueError: not 0 <= first < vocabulary.

    >>> resample = Resample(vocabulary=10, first=4)
    >>> resample.num_replacements((1,)), resample.replacement(0, jnp.array([7])).tolist()
    (6, [4])
    """

    vocabulary: int
    first: int = 0

    def __post_init__(self):
        vocabulary, first = as_whole(self.vocabulary), as_whole(self.first)
        if vocabulary is None or vocabulary < 1:
            raise ValueError(
                f"Resample needs a whole number, vocabulary >= 1; got {one_line(self.vocabulary)}"
            )
        if vocabulary > MAX_INT32:
            raise ValueError(f"Resample needs vocabulary <= {MAX_INT32}; got {vocabulary}")
        if first is None or not 0 <= first < vocabulary:
            raise ValueError(
                f"Resample needs 0 <= first < vocabulary={vocabulary}; got {one_line(self.first)}"
            )
        object.__setattr__(self, "vocabulary", vocabulary)
        object.__setattr__(self, "first", first)

    def __call__(self, key: PRNGKeyArray, window: Array, /) -> Array:
        """A token drawn uniformly from first … vocabulary - 1."""
        index = jax.random.randint(key, (), 0, self.vocabulary - self.first)
        return self.replacement(index, window)

    def num_replacements(self, window_shape: Shape) -> int:
        """One for each id from `first` on."""
        if math.prod(window_shape) not in (1, self.vocabulary):
            raise ValueError(
                f"Resample edits one token at a time: a window of 1 id or of {self.vocabulary} "
                f"one-hot entries; got a window of shape {window_shape}"
            )
        return self.vocabulary - self.first

    def replacement(self, index: Position, window: Array) -> Array:
        """Token `first + index` of the vocabulary, as an id or as a one-hot row."""
        self.num_replacements(window.shape)
        index = index + self.first
        if jnp.issubdtype(window.dtype, jnp.integer):
            return jnp.full(window.shape, index, window.dtype)
        if window.shape[-1] != self.vocabulary:
            raise ValueError(
                f"Resample(vocabulary={self.vocabulary}) needs one-hot rows of that width; "
                f"got a window of shape {window.shape}"
            )
        return jax.nn.one_hot(index, self.vocabulary, dtype=window.dtype).reshape(window.shape)

    def check(self, values: Shaped[np.ndarray, "..."]) -> None:
        """Raises ValueError unless ids are of the vocabulary and their dtype can hold all of it."""
        if not jnp.issubdtype(values.dtype, jnp.integer) or not values.size:
            return
        low, high, largest = int(values.min()), int(values.max()), np.iinfo(values.dtype).max
        if low < 0 or high >= self.vocabulary:
            raise ValueError(
                f"{self!r} needs ids from 0 to {self.vocabulary - 1}; got x with ids from {low} to "
                f"{high}: give the vocabulary that x was made with, or mask what is no token"
            )
        if self.vocabulary - 1 > largest:
            raise ValueError(
                f"{self!r} draws ids up to {self.vocabulary - 1}; got x of {values.dtype}, which "
                f"ends at {largest}: use x.astype(np.int32)"
            )


@dataclass(frozen=True)
class Flip:
    """Exchanges two values; there is no randomness.

    Args:
      low: one of the two values.
      high: the other. By default the edit flips bits of {-1, 1}, and Flip(0, 1) those of {0, 1}.

    Raises:
      ValueError: the two are equal or not finite.

    >>> Flip()(jax.random.key(0), jnp.array([1.0, -1.0])).tolist()
    [-1.0, 1.0]
    """

    low: int = -1
    high: int = 1

    def __post_init__(self):
        low, high = as_real(self.low), as_real(self.high)
        if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(
                "Flip needs two finite numbers, low and high; "
                f"got {one_line(self.low)} and {one_line(self.high)}"
            )
        if low == high:
            raise ValueError(f"Flip needs two different values, low and high; got {low:g} twice")
        for name, number in (("low", low), ("high", high)):
            whole = as_whole(getattr(self, name))
            object.__setattr__(self, name, number if whole is None else whole)

    def __call__(self, key: PRNGKeyArray, window: Array, /) -> Array:
        """The other value; no randomness."""
        return self.replacement(0, window)

    def num_replacements(self, window_shape: Shape) -> int:
        """One: there is only one other value."""
        return 1

    def replacement(self, index: Position, window: Array) -> Array:
        """The flipped window."""
        low, high = (jnp.asarray(value, window.dtype) for value in (self.low, self.high))
        return jnp.where(window == low, high, low)

    def check(self, values: Shaped[np.ndarray, "..."]) -> None:
        """Raises ValueError unless every input is one of the two values: {0, 1} is not {-1, 1}."""
        strange = ~np.isin(values, [self.low, self.high])
        if strange.any():
            raise ValueError(
                f"{self!r} needs inputs that are {self.low} or {self.high}; "
                f"got {values[strange][0]}"
            )


@dataclass(frozen=True)
class Donor:
    """Replaces the window by the same window of another example, drawn uniformly from the others.

    A measurement chooses the donor and passes its window, so that this edit itself is trivial.

    >>> Donor()(jax.random.key(0), jnp.zeros(2), jnp.ones(2)).tolist()
    [1.0, 1.0]
    """

    def __call__(self, key: PRNGKeyArray, window: Array, donor: Array, /) -> Array:
        """The donor's window."""
        return donor
