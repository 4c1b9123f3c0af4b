"""Architectures of the papers in Flax linen, one a file: pure functions of (variables, x)."""

from jaxsens.models.cnn import CNN
from jaxsens.models.convmixer import ConvMixer
from jaxsens.models.densenet import DenseNet
from jaxsens.models.mlp import MLP
from jaxsens.models.resnet import ResNet
from jaxsens.models.vit import ViTSmall
from jaxsens.models.vit_simple import ViTSimple

__all__ = ["CNN", "MLP", "ConvMixer", "DenseNet", "ResNet", "ViTSimple", "ViTSmall"]
