"""Small models of token sequences, as the theory parts of the papers use them."""

from jaxsens.models.tokens.bare_transformer import BareTransformer
from jaxsens.models.tokens.bit_transformer import BitTransformer, ScratchpadTransformer
from jaxsens.models.tokens.feature_maps import RandomAttentionFeatures, RandomFeatures
from jaxsens.models.tokens.token_attention import TokenAttention
from jaxsens.models.tokens.token_mlp import TokenMLP

__all__ = [
    "BareTransformer",
    "BitTransformer",
    "RandomAttentionFeatures",
    "RandomFeatures",
    "ScratchpadTransformer",
    "TokenAttention",
    "TokenMLP",
]
