"""Architectures of the papers in Flax linen, one a file: pure functions of (variables, x)."""

from jaxsens.models.bare_transformer import BareTransformer
from jaxsens.models.cnn import CNN
from jaxsens.models.convmixer import ConvMixer
from jaxsens.models.densenet import DenseNet
from jaxsens.models.gpt2 import GPT2
from jaxsens.models.lstm import LSTM
from jaxsens.models.mlp import MLP
from jaxsens.models.resnet import ResNet
from jaxsens.models.roberta import RoBERTa
from jaxsens.models.text import TextModel
from jaxsens.models.token_attention import TokenAttention
from jaxsens.models.token_mlp import TokenMLP
from jaxsens.models.vit import ViTSmall
from jaxsens.models.vit_simple import ViTSimple

__all__ = [
    "CNN",
    "GPT2",
    "LSTM",
    "MLP",
    "BareTransformer",
    "ConvMixer",
    "DenseNet",
    "ResNet",
    "RoBERTa",
    "TextModel",
    "TokenAttention",
    "TokenMLP",
    "ViTSimple",
    "ViTSmall",
]
