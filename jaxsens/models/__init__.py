"""Architectures of the papers in Flax linen, one per file: pure functions of (variables, x)."""

from jaxsens.models.text.gpt2 import GPT2
from jaxsens.models.text.lstm import LSTM
from jaxsens.models.text.roberta import RoBERTa
from jaxsens.models.text.text_model import TextModel
from jaxsens.models.tokens.bare_transformer import BareTransformer
from jaxsens.models.tokens.bit_transformer import BitTransformer, ScratchpadTransformer
from jaxsens.models.tokens.token_attention import TokenAttention
from jaxsens.models.tokens.token_mlp import TokenMLP
from jaxsens.models.vision.cnn import CNN
from jaxsens.models.vision.convmixer import ConvMixer
from jaxsens.models.vision.densenet import DenseNet
from jaxsens.models.vision.mlp import MLP
from jaxsens.models.vision.resnet import ResNet
from jaxsens.models.vision.vit import ViTSmall
from jaxsens.models.vision.vit_simple import ViTSimple

__all__ = [
    "CNN",
    "GPT2",
    "LSTM",
    "MLP",
    "BareTransformer",
    "BitTransformer",
    "ConvMixer",
    "DenseNet",
    "ResNet",
    "RoBERTa",
    "ScratchpadTransformer",
    "TextModel",
    "TokenAttention",
    "TokenMLP",
    "ViTSimple",
    "ViTSmall",
]
