"""Other frameworks' code under JAX's default rules, whatever the user has set."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def default_promotion() -> Iterator[None]:
    """Lets ranks and dtypes be promoted: who forbids it means their own code, not a framework's.

    >>> import jax.numpy as jnp
    >>> with jax.numpy_rank_promotion("raise"), default_promotion():
    ...     print((jnp.ones((1, 2)) + jnp.ones(2)).shape)
    (1, 2)
    """
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield
