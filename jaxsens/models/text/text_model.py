"""What the text models share: token ids in, one seam for noise, attention over real tokens.

Every text model is the composition of

    embed(tokens)                 (n, T) ids to (n, T, d): the sum of all embeddings, layer-normed
    from_embeddings(e, mask)      (n, T, d) and the mask of real tokens to logits (n, C)

so noise enters at exactly one place, and without noise the prediction is the ordinary one.

Assumption: padding stands at the end of a sequence and has the id `PAD_ID`.
"""

import abc

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxsens.incremental.attention_operation import Activation
from jaxsens.models.layers.multi_head import Heads, multi_head_attention
from jaxsens.text.special_ids import PAD_ID

Tokens = Int[Array, "n T"]
Embedded = Float[Array, "n T d"]
Mask = Bool[Array, "n T"]
Logits = Float[Array, "n C"]


class TextModel(nn.Module, abc.ABC):
    """The seam that all text models have.

    Example:
      >>> import jax
      >>> from jaxsens.models import LSTM
      >>> model, tokens = LSTM(vocab_size=100), jnp.ones((1, 8), jnp.int32)
      >>> variables = jax.eval_shape(model.init, jax.random.key(0), tokens)
      >>> embed = lambda variables, tokens: model.apply(variables, tokens, method="embed")
      >>> jax.eval_shape(embed, variables, tokens).shape
      (1, 8, 256)
    """

    def __call__(self, tokens: Tokens, *, train: bool = False) -> Logits:
        """Logits of padded token ids."""
        return self.from_embeddings(self.embed(tokens), tokens != PAD_ID, train=train)

    @abc.abstractmethod
    def embed(self, tokens: Tokens) -> Embedded:
        """The layer-normed sum of the embeddings."""

    @abc.abstractmethod
    def normalise(self, e: Embedded) -> Embedded:
        """The last step of `embed` alone: its layer norm."""

    @abc.abstractmethod
    def from_embeddings(self, e: Embedded, mask: Mask, *, train: bool = False) -> Logits:
        """The rest of the network."""

    def embed_again(self, e: Embedded, mask: Mask) -> Embedded:
        """What the authors' code does once more to noisy embeddings; for most models nothing."""
        return e


def dense(features: int, std: float = 0.02, *, bias: bool = True) -> nn.Dense:
    """A dense layer with weights N(0, std²) and biases 0, as in BERT and GPT-2."""
    return nn.Dense(features, use_bias=bias, kernel_init=nn.initializers.normal(std))


class MultiHeadAttention(nn.Module):
    """Some tokens' attention to all: softmax, or ReLU of the same logits, not normalised at all.

    Attributes:
      heads: number of heads.
      activation: what turns logits into weights. "relu" is ReLU(q·k/√e), as in the paper's second
        RoBERTa.
      dropout: rate on the weights.
      out_std: standard deviation of the output projection's first weights.
      causal: whether no token sees a later one; `visible` must say so too.
    """

    heads: int
    activation: Activation = "softmax"
    dropout: float = 0.1
    out_std: float = 0.02
    causal: bool = False

    @nn.compact
    def __call__(
        self,
        queries: Float[Array, "n Q d"],
        x: Float[Array, "n T d"],
        visible: Bool[Array, "n Q T"],
        *,
        train: bool,
    ) -> Float[Array, "n Q d"]:
        """What `queries` receive from the tokens of `x` that each may see."""
        head_width = x.shape[-1] // self.heads
        heads = Heads(
            self.heads,
            head_width,
            kernel_init=nn.initializers.normal(0.02),
            bias_init=nn.initializers.zeros,
            out_kernel_init=nn.initializers.normal(self.out_std),
            out_bias_init=nn.initializers.zeros,
            activation=self.activation,
            causal=self.causal,
            dropout=self.dropout,
        )
        scale = jnp.asarray(head_width**-0.5, x.dtype)
        return multi_head_attention(heads, queries, x, visible, scale=scale, train=train)
