"""Architectures of the papers in Flax linen, one a file: pure functions of (variables, x)."""

from jaxsens.models.cnn import CNN
from jaxsens.models.mlp import MLP
from jaxsens.models.vit import ViTSmall

__all__ = ["CNN", "MLP", "ViTSmall"]
