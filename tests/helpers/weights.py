"""Weights of a model without its own `init`, which takes longer to compile than most tests run."""

import functools
import math

import jax
import numpy as np


def weights_of(model, *inputs, seed=0, **options):
    """Variables of a Flax model as they may be after training: none of them is 0, or 1.

    Kernels are about as large as they start: N(0, 1 / number of inputs).
    """
    init = functools.partial(model.init, **options)
    shapes = jax.eval_shape(init, jax.random.key(0), *inputs)
    rng = np.random.default_rng(seed)

    def leaf(path, shape):
        values = rng.normal(size=shape.shape) / math.sqrt(math.prod(shape.shape[:-1]) or 1)
        name = getattr(path[-1], "key", "")
        if name in ("scale", "var"):
            values = 1 + np.tanh(values) / 2
        elif len(shape.shape) < 2:
            values = values / 10
        return jax.numpy.asarray(values, shape.dtype)

    return jax.tree_util.tree_map_with_path(leaf, shapes)
