"""Layers that the models share: convolutions, norms, pooling, attention with several heads."""

from jaxsens.models.layers.basics import (
    Dropout,
    avg_pool,
    batch_norm,
    conv,
    gelu,
    layer_norm,
    linear,
    max_pool,
    uniform_fan_in,
)
from jaxsens.models.layers.convolution import conv_general_dilated, padded_convolution
from jaxsens.models.layers.multi_head import Heads, Projection, multi_head_attention

__all__ = [
    "Dropout",
    "Heads",
    "Projection",
    "avg_pool",
    "batch_norm",
    "conv",
    "conv_general_dilated",
    "gelu",
    "layer_norm",
    "linear",
    "max_pool",
    "multi_head_attention",
    "padded_convolution",
    "uniform_fan_in",
]
