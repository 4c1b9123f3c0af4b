"""Finite networks of the architectures, in Flax, whose kernels converge to the limits with width.

Weights are N(0, 1) and layers divide by √(fan-in), as `jaxsens.spectrum.architectures` says. With
scaling "sqrt" attention converges as the number of heads grows, whatever the width of their keys;
with "linear" as the width of the keys grows, whatever their number. The other of the two is small.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsens.spectrum.architectures import MLP, Activation, Architecture, Transformer

#: What need not grow with the width: the width of the heads ("sqrt") or their number ("linear").
SMALL = 4

_normal = nn.initializers.normal(1.0)


class Dense(nn.Module):
    """x W √(σ_w²/n) + b √σ_b², W and b of N(0, 1)."""

    width: int
    weight_variance: float = 1.0
    bias_variance: float = 0.0

    @nn.compact
    def __call__(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch m"]:
        """The layer's output."""
        fan_in = x.shape[-1]
        weight = self.param("kernel", _normal, (fan_in, self.width), x.dtype)
        out = x @ weight * (self.weight_variance / fan_in) ** 0.5
        if not self.bias_variance:
            return out
        bias = self.param("bias", _normal, (self.width,), x.dtype)
        return out + (bias * self.bias_variance**0.5).reshape((1,) * (out.ndim - 1) + (-1,))


class FiniteMLP(nn.Module):
    """An `MLP` of finite width with one output.

    >>> model = FiniteMLP(MLP(), width=8)
    >>> params = model.init(jax.random.key(0), jnp.ones((2, 4)))
    >>> model.apply(params, jnp.ones((2, 4))).shape
    (2,)
    """

    architecture: MLP
    width: int

    @nn.compact
    def features(self, x: Float[Array, "n d"]) -> Float[Array, "n m"]:
        """What the last layer sees, with its scale: h in f(x) = ⟨h(x), v⟩, v of N(0, 1)."""
        weight, bias = self.architecture.weight_variance, self.architecture.bias_variance
        for _ in range(self.architecture.depth):
            x = activation(self.architecture.activation)(Dense(self.width, weight, bias)(x))
        x = x * (weight / self.width) ** 0.5
        return jnp.concatenate([x, jnp.full((len(x), 1), bias**0.5, x.dtype)], axis=1)

    @nn.compact
    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        """The scalar output."""
        return _readout(self, self.features(x))


class FiniteTransformer(nn.Module):
    """A `Transformer` with `width` channels and heads, and one output.

    >>> model = FiniteTransformer(Transformer(tokens=2), width=8)
    >>> params = model.init(jax.random.key(0), jnp.ones((3, 4)))
    >>> model.apply(params, jnp.ones((3, 4))).shape
    (3,)
    """

    architecture: Transformer
    width: int

    @nn.compact
    def features(self, x: Float[Array, "n d"]) -> Float[Array, "n m"]:
        """What the last layer sees, with its scale: h in f(x) = ⟨h(x), v⟩, v of N(0, 1)."""
        a = self.architecture
        x = x.reshape(len(x), a.tokens, a.width(x.shape[1]))
        if a.embed:
            x = Dense(self.width)(x)
        for _ in range(a.depth):
            x = self._join(x, Attention(a, self.width)(self._normalised(x)))
            if a.activation is not None:
                hidden = activation(a.activation)(Dense(self.width)(self._normalised(x)))
                x = self._join(x, Dense(self.width)(hidden))
        x = x if a.readout == "flatten" else jnp.mean(x, axis=1)
        x = x.reshape(len(x), -1)
        return x / x.shape[1] ** 0.5

    @nn.compact
    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        """The scalar output."""
        return _readout(self, self.features(x))

    def _normalised(self, x: Array) -> Array:
        if not self.architecture.layer_norm:
            return x
        mean = jnp.mean(x, axis=-1, keepdims=True)
        return (x - mean) / jnp.std(x, axis=-1, keepdims=True)

    def _join(self, skip: Array, branch: Array) -> Array:
        return skip + branch if self.architecture.residual else branch


class Attention(nn.Module):
    """Linear attention with `width` heads of width `SMALL`, or the other way round."""

    architecture: Transformer
    width: int

    @nn.compact
    def __call__(self, x: Float[Array, "n T m"]) -> Float[Array, "n T width"]:
        """Σ_heads Q Kᵀ V W_O, scaled."""
        _, tokens, fan_in = x.shape
        if self.architecture.position_variance:
            encoding = self.param("positions", _normal, (1, tokens, fan_in), x.dtype)
            x = x + encoding * self.architecture.position_variance**0.5
        sqrt = self.architecture.scaling == "sqrt"
        num_heads, head_width = (self.width, SMALL) if sqrt else (SMALL, self.width)
        shape = (fan_in, num_heads, head_width)

        def projected(name: str) -> Float[Array, "n T heads k"]:
            weight = self.param(name, _normal, shape, x.dtype)
            return jnp.einsum("ntm,mhk->nthk", x, weight) / fan_in**0.5

        keys, values = projected("keys"), projected("values")
        queries = projected("queries") if sqrt else keys
        scale = head_width ** (-0.5 if sqrt else -1.0)
        scores = jnp.einsum("nahk,nchk->nhac", queries, keys) * scale
        heads = jnp.einsum("nhac,nchk->nahk", scores, values)
        return Dense(self.width, name="out")(heads.reshape(*heads.shape[:2], -1))


def finite_network(architecture: Architecture, width: int) -> Any:
    """The network of an architecture at finite width, as a Flax module with one output.

    Args:
      architecture: an `MLP` or a `Transformer`.
      width: of its layers, and how many heads there are or how wide they are; see the module.

    Returns:
      A module with `__call__`, (n, d) → (n,), and `features`, (n, d) → (n, m), for the CK.

    >>> type(finite_network(MLP(), 16)).__name__
    'FiniteMLP'
    """
    if isinstance(architecture, MLP):
        return FiniteMLP(architecture, width)
    return FiniteTransformer(architecture, width)


def activation(name: Activation) -> Any:
    """The activation function: GELU in its exact form.

    >>> float(activation("relu")(jnp.array(-1.0)))
    0.0
    """
    exact_gelu = jax.tree_util.Partial(jax.nn.gelu, approximate=False)
    return {"relu": jax.nn.relu, "erf": jax.scipy.special.erf, "gelu": exact_gelu}[name]


def _readout(module: nn.Module, features: Float[Array, "n m"]) -> Float[Array, " n"]:
    weights = module.param("readout", _normal, (features.shape[1],), features.dtype)
    return features @ weights
