"""Models of other frameworks as `(apply_fn, params)`: PyTorch, Equinox, Keras, Haiku, Flax nnx.

Each adapter takes a model as its framework makes it, in eval mode, and returns an `Adapted`, which
unpacks into a function `apply_fn(params, x) -> logits` and its parameters: running statistics and
other buffers are among them. A framework is imported when its adapter is called.

Assumption: a model is a function of its inputs and weights. One that keeps a count, or draws
numbers of its own, is refused where it is noticed.
"""

from jaxsens.adapters._equinox import equinox
from jaxsens.adapters._haiku import haiku
from jaxsens.adapters._keras import keras
from jaxsens.adapters._nnx import nnx
from jaxsens.adapters._torch import embeddings, torch
from jaxsens.core.adapted import Adapted

__all__ = ["Adapted", "embeddings", "equinox", "haiku", "keras", "nnx", "torch"]
