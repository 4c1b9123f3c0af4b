"""Which dtype of JAX a dtype of PyTorch is; 64 bits become 32, unless JAX is told to keep them."""

from typing import Any

import jax
import jax.numpy as jnp


def as_dtype(dtype: Any) -> Any:
    """JAX's dtype for one of PyTorch, by its name; None stays None.

    >>> class Int64: __str__ = lambda self: "torch.int64"
    >>> as_dtype(Int64())
    dtype('int32')
    """
    if dtype is None:
        return None
    name = str(dtype).removeprefix("torch.")
    return jax.dtypes.canonicalize_dtype(jnp.dtype({"bool": "bool_"}.get(name, name)))
