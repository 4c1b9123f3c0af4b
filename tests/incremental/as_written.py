"""Models as people write them: every token in every block, masks of all kinds, layers in a loop."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

T, WIDTH, HEADS = 16, 16, 2
IMAGES = np.random.default_rng(0).normal(size=(3, 16, 16, 1)).astype(np.float32)
ROWS = np.random.default_rng(1).normal(size=(3, T, WIDTH)).astype(np.float32)
#: Texts of three lengths.
MASK = np.arange(T) < np.array([[T], [11], [3]])


class Block(nn.Module):
    """A block of a transformer, norm first."""

    @nn.compact
    def __call__(self, x, mask=None):
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(HEADS)(y, y, mask=mask)
        y = nn.gelu(nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x)))
        return x + nn.Dense(x.shape[-1])(y)


class ViT(nn.Module):
    """A class token before the patches, read after all blocks."""

    depth: int = 2

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(WIDTH, (4, 4), (4, 4))(x)
        x = x.reshape(len(x), -1, WIDTH)
        first = self.param("class", nn.initializers.normal(1.0), (1, 1, WIDTH))
        x = jnp.concatenate([jnp.broadcast_to(first, (len(x), 1, WIDTH)), x], axis=1)
        x = x + self.param("positions", nn.initializers.normal(1.0), (1, *x.shape[1:]))
        for _ in range(self.depth):
            x = Block()(x)
        return nn.Dense(4)(nn.LayerNorm()(x)[:, 0])


class BERT(nn.Module):
    """Norm last, padding masked, the first token pooled."""

    depth: int = 2

    @nn.compact
    def __call__(self, x, mask):
        for _ in range(self.depth):
            y = nn.MultiHeadDotProductAttention(HEADS)(x, x, mask=mask[:, None, None])
            x = nn.LayerNorm()(x + y)
            y = nn.Dense(WIDTH)(nn.gelu(nn.Dense(4 * WIDTH)(x)))
            x = nn.LayerNorm()(x + y)
        return nn.Dense(4)(jnp.tanh(nn.Dense(WIDTH)(x[:, 0])))


class GPT(nn.Module):
    """Causal, with padding masked or not; the last token is read."""

    depth: int = 2

    @nn.compact
    def __call__(self, x, mask=None):
        seen = nn.make_causal_mask(jnp.ones(x.shape[:2]), dtype=bool)
        if mask is not None:
            seen = seen & mask[:, None, None]
        for _ in range(self.depth):
            x = Block()(x, seen)
        return nn.Dense(4)(nn.LayerNorm()(x)[:, -1])


class _Layer(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        return Block()(x), None


class Scanned(nn.Module):
    """One block, run with the parameters of one layer after the other; the first token is read."""

    depth: int = 3

    @nn.compact
    def __call__(self, x):
        layers = nn.scan(
            _Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=self.depth
        )
        x, _ = layers()(x, None)
        return nn.Dense(4)(nn.LayerNorm()(x)[:, 0])


def weights(*shape, seed=0):
    return jnp.asarray(np.random.default_rng((seed, *shape)).normal(size=shape), jnp.float32) / 4


def additive(x, mask):
    """One causal block whose padding and order are numbers that are added, as Keras has it."""
    q, k, v = (
        jnp.einsum("ntd,dhe->nhte", x, weights(WIDTH, HEADS, 8, seed=seed)) for seed in range(3)
    )
    seen = jnp.tril(jnp.ones((T, T), bool))[None] & mask[:, None]
    bias = (1.0 - seen.astype(x.dtype)) * -1e9
    made = jax.nn.softmax(q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(8)) + bias[:, None])
    x = x + (made @ v).transpose(0, 2, 1, 3).reshape(x.shape)
    return jnp.tanh(x @ weights(WIDTH, WIDTH)).mean(axis=1) @ weights(WIDTH, 4)


def lively(variables):
    """Larger weights, so that edits change predictions."""
    return jax.tree.map(lambda leaf: leaf * 2 if leaf.ndim > 1 else leaf, variables)


def made(model, *inputs):
    """Parameters of a model."""
    return lively(jax.jit(model.init)(jax.random.key(0, impl="unsafe_rbg"), *inputs))
