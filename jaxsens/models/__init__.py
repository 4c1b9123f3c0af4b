"""Architectures of the papers in Flax linen, one per file: pure functions of (variables, x).

    vision   CNN, ConvMixer, DenseNet, MLP, ResNet, ViTSimple, ViTSmall: images to logits;
             VisionTransformer: what the last two share
    text     GPT2, LSTM, RoBERTa: padded token ids to logits;  TextModel: what they share
    tokens   BareTransformer, BitTransformer, RandomAttentionFeatures, RandomFeatures,
             ScratchpadTransformer, TokenAttention, TokenMLP: the small models of the theory parts
    layers   what they are made of

Assumption of all: called without `train=True` a model is in eval mode (no dropout, running averages
in batch norm), which is how it is measured.
"""

from jaxsens.models.text import GPT2, LSTM, RoBERTa, TextModel
from jaxsens.models.tokens import (
    BareTransformer,
    BitTransformer,
    RandomAttentionFeatures,
    RandomFeatures,
    ScratchpadTransformer,
    TokenAttention,
    TokenMLP,
)
from jaxsens.models.vision import (
    CNN,
    MLP,
    ConvMixer,
    DenseNet,
    ResNet,
    VisionTransformer,
    ViTSimple,
    ViTSmall,
)

__all__ = [
    "CNN",
    "GPT2",
    "LSTM",
    "MLP",
    "BareTransformer",
    "BitTransformer",
    "ConvMixer",
    "DenseNet",
    "RandomAttentionFeatures",
    "RandomFeatures",
    "ResNet",
    "RoBERTa",
    "ScratchpadTransformer",
    "TextModel",
    "TokenAttention",
    "TokenMLP",
    "ViTSimple",
    "ViTSmall",
    "VisionTransformer",
]
