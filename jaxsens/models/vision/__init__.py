"""Models of images: float32 (n, H, W, C) in, logits out."""

from jaxsens.models.vision.cnn import CNN
from jaxsens.models.vision.convmixer import ConvMixer
from jaxsens.models.vision.densenet import DenseNet
from jaxsens.models.vision.mlp import MLP
from jaxsens.models.vision.resnet import ResNet
from jaxsens.models.vision.vision_transformer import VisionTransformer
from jaxsens.models.vision.vit import ViTSmall
from jaxsens.models.vision.vit_simple import ViTSimple

__all__ = [
    "CNN",
    "MLP",
    "ConvMixer",
    "DenseNet",
    "ResNet",
    "ViTSimple",
    "ViTSmall",
    "VisionTransformer",
]
