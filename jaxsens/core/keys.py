"""Random keys whose draws do not depend on how many are made at a time."""

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

_THREEFRY = "threefry2x32"


def batch_invariant(key: PRNGKeyArray) -> PRNGKeyArray:
    """The key itself if it is a threefry key, else a threefry key made of its words.

    The draws of JAX's rbg keys change with the number of keys that `vmap` maps over: they would
    depend on the chunk size, on the devices and on whether clean values are reused.

    >>> key = jax.random.key(0, impl="threefry2x32")
    >>> batch_invariant(key) is key
    True
    """
    if str(jax.random.key_impl(key)) == _THREEFRY:
        return key
    words = np.ravel(jax.random.key_data(key)).tolist()
    made = jax.random.key(0, impl=_THREEFRY)
    for word in words:
        made = jax.random.fold_in(made, word)
    return made
