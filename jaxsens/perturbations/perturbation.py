"""Window edits: the one kind of perturbation of inputs in jaxsens.

Every experiment of the papers replaces a small window of the input and leaves the rest alone. A
`Perturbation` is a frozen, hashable pair of

* a *grid* (`jaxsens.perturbations.grids`): the static shape of windows and where window τ starts;
* an *edit* (`jaxsens.perturbations.edits`): a pure function `edit(key, window) -> window`.

Nothing else in the library knows about patches, tokens or bits.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, Shaped

from jaxsens.core.scalars import check_hashable, one_line
from jaxsens.perturbations.edits import CheckedEdit, Donor, Edit, FiniteEdit, ReferencedEdit
from jaxsens.perturbations.grids import Grid, Position, Shape


@dataclass(frozen=True)
class Perturbation:
    """A grid and an edit: how one window of one example changes.

        x'[window τ] = edit(key, x[window τ]),    x' = x elsewhere

    Args:
      grid: where the windows are, such as `Patches(4)` or `Tokens()`.
      edit: what happens to a window, such as `Gaussian(sigma=1.0)`, or any hashable function
        `edit(key, window) -> window` of the same shape and dtype.

    Raises:
      ValueError: these are not a grid and an edit, in this order.

    >>> from jaxsens import Bits, Flip
    >>> perturb = Perturbation(Bits(), Flip())
    >>> perturb(jax.random.key(0), jnp.ones(4), 2)
    Array([ 1.,  1., -1.,  1.], dtype=float32)
    """

    grid: Grid
    edit: Edit | Donor

    def __post_init__(self):
        if is_grid(self.edit) and not is_grid(self.grid):
            raise ValueError(
                "Perturbation takes the grid first, then the edit; got grid="
                f"{one_line(self.grid)} and edit={one_line(self.edit)}: exchange them"
            )
        if not is_grid(self.grid):
            raise ValueError(
                "Perturbation needs a grid first, such as Patches(4) or Tokens(); got grid="
                f"{one_line(self.grid)}"
            )
        if not is_edit(self.edit):
            raise ValueError(
                "Perturbation needs an edit second, such as Gaussian(sigma=1.0) or Flip(); got "
                f"edit={one_line(self.edit)}"
            )
        check_hashable("Perturbation", (self.grid, self.edit))

    @property
    def needs_pool(self) -> bool:
        """Whether the edit needs the other examples."""
        return isinstance(self.edit, Donor)

    def num_positions(self, shape: Shape) -> int:
        """T for an example of this shape."""
        return math.prod(self.grid.layout(shape))

    def num_replacements(self, shape: Shape) -> int:
        """How many equally likely replacements a window has; ValueError if infinitely many."""
        if not isinstance(self.edit, FiniteEdit):
            raise ValueError(
                f"num_samples='all' enumerates every replacement, but {self.edit!r} has infinitely "
                "many; give a number of samples, or use Resample, Flip or Replace"
            )
        return self.edit.num_replacements(self.grid.window_shape(shape))

    def check(self, values: Shaped[np.ndarray, "..."]) -> None:
        """Raises ValueError if the edit has no meaning for these inputs."""
        if isinstance(self.edit, CheckedEdit):
            self.edit.check(values)

    def replacement(self, index: Position, x: Array, position: Position) -> Array:
        """Replacement `index` of window `position`, for edits with finitely many."""
        if isinstance(self.edit, ReferencedEdit):
            return self._checked(self._reference_window(self.edit, x, position), x)
        assert isinstance(self.edit, FiniteEdit)
        return self._checked(self.edit.replacement(index, self.current_window(x, position)), x)

    def _reference_window(self, edit: ReferencedEdit, x: Array, position: Position) -> Array:
        reference = edit.reference(x, self.grid.window_shape(x.shape))
        return self.current_window(reference, position)

    def window(
        self,
        key: PRNGKeyArray,
        x: Shaped[Array, "..."],
        position: Position,
        *,
        pool: Shaped[Array, "n ..."] | None = None,
        example: Position | None = None,
    ) -> Shaped[Array, "..."]:
        """The new entries of window `position`; arguments as for `__call__`."""
        if isinstance(self.edit, ReferencedEdit):
            return self._checked(self._reference_window(self.edit, x, position), x)
        window = self.current_window(x, position)
        if not isinstance(self.edit, Donor):
            return self._checked(self.edit(key, window), x)
        if pool is None or example is None:
            raise ValueError(f"{self.edit!r} needs pool= (all examples) and example= (x's index)")
        other = jax.random.randint(key, (), 0, pool.shape[0] - 1)
        other = jnp.where(other >= example, other + 1, other)
        donor = self.current_window(
            jax.lax.dynamic_index_in_dim(pool, other, keepdims=False), position
        )
        return self._checked(self.edit(key, window, donor), x)

    def current_window(self, x: Array, position: Position) -> Array:
        """The entries of window `position` as they are."""
        start = self._start(position, x)
        return jax.lax.dynamic_slice(x, start, self.grid.window_shape(x.shape))

    def put(self, x: Array, window: Array, position: Position) -> Array:
        """A copy of `x` with these entries in window `position`."""
        return jax.lax.dynamic_update_slice(x, window, self._start(position, x))

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
          pool: all examples (n, …), for an edit that borrows from another one (`Donor`).
          example: the index of `x` in `pool`, which is never drawn as its own donor.

        Returns:
          The edited example, of the shape and dtype of `x`.

        Raises:
          ValueError: the edit gives another shape or dtype, or needs `pool` and `example`.
        """
        return self.put(x, self.window(key, x, position, pool=pool, example=example), position)

    def _start(self, position: Position, x: Array) -> list[Array]:
        """The first index of the window as int32: in 64-bit mode JAX would mix dtypes otherwise."""
        return [jnp.asarray(start, jnp.int32) for start in self.grid.start(position, x.shape)]

    def _checked(self, window: Array, x: Array) -> Array:
        expected = self.grid.window_shape(x.shape), x.dtype
        if (window.shape, window.dtype) != expected:
            raise ValueError(
                f"{self.edit!r} must return a window of shape {expected[0]} and dtype {expected[1]}"
                f"; got {window.shape} and {window.dtype}"
            )
        return window


def is_grid(value: Any) -> bool:
    """Whether this is a grid: a value, not the class of one."""
    return isinstance(value, Grid) and not isinstance(value, type)


def is_edit(value: Any) -> bool:
    """Whether this is an edit: a value, not the class of one, and no grid."""
    return callable(value) and not isinstance(value, type) and not is_grid(value)
