"""Window edits: the one kind of perturbation in jaxsens.

Every experiment of the papers replaces a small window of the input and leaves the rest alone. A
`Perturbation` is a frozen, hashable pair of

* a *grid*: the static shape of the window and where window τ starts, τ = 0 … T-1;
* an *edit*: a pure function `edit(key, window) -> window`.

A new modality is a new grid, a new noise is a new edit; nothing else in the library knows about
patches, tokens or bits.

Assumption: a grid's windows have one static shape and do not depend on the input's values, and an
edit depends on nothing but its key and the window (`Donor` also sees the same window of another
example). An edit that keeps hidden state would be traced once and silently give the same draw.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, Shaped

Shape = tuple[int, ...]
Position = int | Int[Array, ""]


@runtime_checkable
class Grid(Protocol):
    """Where the windows of one example lie. Implementations are frozen dataclasses."""

    def layout(self, shape: Shape) -> Shape:
        """The positions' own shape, with product T; raises ValueError where the grid cannot lie."""

    def window_shape(self, shape: Shape) -> Shape:
        """The static shape of every window, of the same rank as the example."""

    def start(self, position: Position, shape: Shape) -> tuple[Position, ...]:
        """The first index of window `position` on every axis."""


@dataclass(frozen=True)
class Patches:
    """Non-overlapping p×p patches with all channels, in row-major order, of an (H, W, C) image.

    >>> Patches(4).layout((28, 28, 1))
    (7, 7)
    """

    size: int

    def layout(self, shape: Shape) -> Shape:
        """Rows and columns of patches."""
        if len(shape) != 3:
            raise ValueError(f"Patches needs images (H, W, C); got an example of shape {shape}")
        common = math.gcd(*shape[:2])
        if self.size < 1 or common % self.size:
            side = next((side for side in shape[:2] if self.size < 1 or side % self.size), common)
            divisors = ", ".join(str(p) for p in range(1, common + 1) if common % p == 0)
            raise ValueError(
                f"patch={self.size} does not divide image side {side}; choose one of {divisors}"
            )
        return shape[0] // self.size, shape[1] // self.size

    def window_shape(self, shape: Shape) -> Shape:
        """(p, p, C)."""
        return self.size, self.size, shape[2]

    def start(self, position: Position, shape: Shape) -> tuple[Position, ...]:
        """Top-left corner of the patch."""
        columns = shape[1] // self.size
        return position // columns * self.size, position % columns * self.size, 0


@dataclass(frozen=True)
class Tokens:
    """One entry of the leading axis: a row of a (T, d) embedding or one-hot matrix, or an id (T,).

    >>> Tokens().window_shape((50, 59))
    (1, 59)
    """

    def layout(self, shape: Shape) -> Shape:
        """(T,)."""
        if not shape:
            raise ValueError("Tokens needs sequences (T, …); got a scalar for each example")
        return shape[:1]

    def window_shape(self, shape: Shape) -> Shape:
        """(1, d), or (1,) for token ids."""
        return 1, *shape[1:]

    def start(self, position: Position, shape: Shape) -> tuple[Position, ...]:
        """The token's row."""
        return position, *(0 for _ in shape[1:])


@dataclass(frozen=True)
class Bits(Tokens):
    """One coordinate of a point (d,) of the Boolean cube.

    >>> Bits().layout((20,))
    (20,)
    """

    def layout(self, shape: Shape) -> Shape:
        """(d,)."""
        if len(shape) != 1:
            raise ValueError(f"Bits needs points of the cube (d,); got an example of shape {shape}")
        return shape


@runtime_checkable
class Edit(Protocol):
    """`edit(key, window) -> window` of the same shape and dtype. Implementations are hashable."""

    def __call__(self, key: PRNGKeyArray, window: Array, /) -> Array:
        """A random new window."""


@runtime_checkable
class FiniteEdit(Protocol):
    """An edit that is uniform over finitely many replacements, so that all can be enumerated."""

    def num_replacements(self, window_shape: Shape) -> int:
        """How many replacements there are."""

    def replacement(self, index: Position, window: Array) -> Array:
        """Replacement `index` of the window."""


@runtime_checkable
class CheckedEdit(Protocol):
    """An edit that is meaningless for some inputs, and says so before anything is measured."""

    def check(self, values: Shaped[np.ndarray, "..."]) -> None:
        """Raises ValueError for inputs that the edit does not understand."""


@dataclass(frozen=True)
class Gaussian:
    """Adds independent N(0, σ²) noise; give either `sigma` (σ) or `variance` (σ²).

    >>> Gaussian(variance=4.0).sigma
    2.0
    """

    sigma: float | None = None
    variance: float | None = None

    def __post_init__(self):
        if (self.sigma is None) == (self.variance is None):
            raise ValueError(
                "Gaussian takes one of sigma= and variance=; "
                f"got sigma={self.sigma}, variance={self.variance}"
            )
        name, given = (
            ("sigma", self.sigma) if self.variance is None else ("variance", self.variance)
        )
        if given is None or not (math.isfinite(given) and given >= 0):
            raise ValueError(f"Gaussian needs a finite {name} >= 0; got {given}")
        if self.variance is None:
            object.__setattr__(self, "variance", float(given) ** 2)
        else:
            object.__setattr__(self, "sigma", math.sqrt(given))

    def __call__(self, key: PRNGKeyArray, window: Array, /) -> Array:
        """Window + σ·ξ, ξ ~ N(0, I)."""
        if not jnp.issubdtype(window.dtype, jnp.floating):
            raise ValueError(f"Gaussian noise needs floating-point inputs; got {window.dtype}")
        noise = jax.random.normal(key, window.shape, window.dtype)
        return window + jnp.asarray(self.sigma, window.dtype) * noise

    def __repr__(self) -> str:
        return f"Gaussian(sigma={self.sigma:.6g}, variance={self.variance:.6g})"


@dataclass(frozen=True)
class Resample:
    """Replaces a token by one drawn uniformly from the whole vocabulary, the current one included.

    Integer windows hold token ids; floating windows are one-hot rows of width `vocabulary`.
    """

    vocabulary: int

    def __post_init__(self):
        if self.vocabulary < 1:
            raise ValueError(f"Resample needs vocabulary >= 1; got {self.vocabulary}")

    def __call__(self, key: PRNGKeyArray, window: Array, /) -> Array:
        """A token drawn from Unif(vocabulary)."""
        return self.replacement(jax.random.randint(key, (), 0, self.vocabulary), window)

    def num_replacements(self, window_shape: Shape) -> int:
        """One for each item of the vocabulary."""
        if math.prod(window_shape) not in (1, self.vocabulary):
            raise ValueError(
                f"Resample edits one token at a time: a window of 1 id or of {self.vocabulary} "
                f"one-hot entries; got a window of shape {window_shape}"
            )
        return self.vocabulary

    def replacement(self, index: Position, window: Array) -> Array:
        """Token `index` of the vocabulary, as an id or as a one-hot row."""
        self.num_replacements(window.shape)
        if jnp.issubdtype(window.dtype, jnp.integer):
            return jnp.full(window.shape, index, window.dtype)
        if window.shape[-1] != self.vocabulary:
            raise ValueError(
                f"Resample(vocabulary={self.vocabulary}) needs one-hot rows of that width; "
                f"got a window of shape {window.shape}"
            )
        return jax.nn.one_hot(index, self.vocabulary, dtype=window.dtype).reshape(window.shape)


@dataclass(frozen=True)
class Flip:
    """Exchanges `low` and `high`; by default flips a bit of {-1, +1}; Flip(0, 1) one of {0, 1}."""

    low: int = -1
    high: int = 1

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
        """Every input must be one of the two values: {0, 1} is not {-1, 1}."""
        strange = ~np.isin(values, [self.low, self.high])
        if strange.any():
            raise ValueError(
                f"{self!r} needs inputs that are {self.low} or {self.high}; "
                f"got {values[strange][0]}"
            )


@dataclass(frozen=True)
class Donor:
    """Replaces the window by the same window of another example, uniformly from all the others."""

    def __call__(self, key: PRNGKeyArray, window: Array, donor: Array, /) -> Array:
        """The donor's window."""
        return donor


@dataclass(frozen=True)
class Perturbation:
    """A grid and an edit: how one window of one example changes.

    >>> perturb = Perturbation(Bits(), Flip())
    >>> perturb(jax.random.key(0), jnp.ones(4), 2)
    Array([ 1.,  1., -1.,  1.], dtype=float32)
    """

    grid: Grid
    edit: Edit | Donor

    @property
    def needs_pool(self) -> bool:
        """Whether the edit looks at other examples."""
        return isinstance(self.edit, Donor)

    def num_positions(self, shape: Shape) -> int:
        """T for an example of this shape."""
        return math.prod(self.grid.layout(shape))

    def num_replacements(self, shape: Shape) -> int:
        """How many equally likely replacements a window has; ValueError unless they are finite."""
        if not isinstance(self.edit, FiniteEdit):
            raise ValueError(
                f"num_samples='all' enumerates every replacement, but {self.edit!r} has infinitely "
                "many; give a number of samples, or use Resample or Flip"
            )
        return self.edit.num_replacements(self.grid.window_shape(shape))

    def check(self, values: Shaped[np.ndarray, "..."]) -> None:
        """Raises ValueError if the edit does not understand these inputs."""
        if isinstance(self.edit, CheckedEdit):
            self.edit.check(values)

    def replace(self, index: Position, x: Array, position: Position) -> Array:
        """Replacement `index` of window `position`, for edits with finitely many."""
        assert isinstance(self.edit, FiniteEdit)
        window, start = self._window(x, position)
        return self._put(x, self.edit.replacement(index, window), start)

    def __call__(
        self,
        key: PRNGKeyArray,
        x: Shaped[Array, "..."],
        position: Position,
        *,
        pool: Shaped[Array, "n ..."] | None = None,
        example: Position | None = None,
    ) -> Shaped[Array, "..."]:
        """A copy of `x` with window `position` edited.

        Args:
          key: the draw's own key.
          x: one example.
          position: τ, from 0 to T-1; may be traced.
          pool: all examples, for an edit that borrows from another one.
          example: the index of `x` in `pool`, never drawn as its own donor.
        """
        window, start = self._window(x, position)
        if not isinstance(self.edit, Donor):
            return self._put(x, self.edit(key, window), start)
        if pool is None or example is None:
            raise ValueError(f"{self.edit!r} needs pool= (all examples) and example= (x's index)")
        other = jax.random.randint(key, (), 0, pool.shape[0] - 1)
        other = jnp.where(other >= example, other + 1, other)
        donor, _ = self._window(jax.lax.dynamic_index_in_dim(pool, other, keepdims=False), position)
        return self._put(x, self.edit(key, window, donor), start)

    def _window(self, x: Array, position: Position) -> tuple[Array, tuple[Position, ...]]:
        start = self.grid.start(position, x.shape)
        return jax.lax.dynamic_slice(x, start, self.grid.window_shape(x.shape)), start

    def _put(self, x: Array, window: Array, start: tuple[Position, ...]) -> Array:
        expected = self.grid.window_shape(x.shape), x.dtype
        if (window.shape, window.dtype) != expected:
            raise ValueError(
                f"{self.edit!r} must return a window of shape {expected[0]} and dtype {expected[1]}"
                f"; got {window.shape} and {window.dtype}"
            )
        return jax.lax.dynamic_update_slice(x, window, start)
