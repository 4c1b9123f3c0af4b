"""What is measured of a model of the synthetic task: scores, sensitivity, and its inside.

Sensitivity is exact: every position × every token.
"""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxsens import Perturbation, Resample, Tokens, sensitivity
from jaxsens.data.generated.sparse_tokens import TYPES, Counts, token_types
from jaxsens.models import TokenAttention, TokenMLP

from .theory import LENGTH, SETTINGS, Setting

#: Vocabulary that all settings are padded to.
PADDED = max(int(setting.counts.vocabulary) for setting in SETTINGS)
#: The model, and the controls without attention. Jobs scale the initial weights themselves.
HEADS: dict[str, nn.Module] = {
    "attention": TokenAttention(PADDED, LENGTH, sigma=1.0),
    "MLP": TokenMLP(PADDED, LENGTH, "flatten", sigma=1.0),
    "summing MLP": TokenMLP(PADDED, LENGTH, "sum", sigma=1.0),
}
# Sequences that go through a model side by side when it is measured.
_ROWS = 100
_EDITED_ROWS = 4


def real_tokens(counts: Counts) -> Float[Array, " M"]:
    """1 for the tokens of the setting's vocabulary, 0 for padding."""
    return (jnp.arange(PADDED) < counts.vocabulary).astype(jnp.float32)


@functools.partial(jax.jit, static_argnums=0)
def exact_sensitivity(
    model: nn.Module, params: Any, x: Int[Array, "n T"], counts: Counts
) -> Float[Array, ""]:
    """The share of all (sequence, position, token) in which the sign of the score changes."""
    real = real_tokens(counts)

    def changes(row: Int[Array, " T"]) -> Float[Array, ""]:
        clean = jnp.sign(applied(model)(params, row[None])[0])
        edited = jnp.sign(applied(model)(params, row, method="edited"))
        return jnp.where(edited != clean, real[None, :], 0.0).sum()

    total = lax.map(changes, x, batch_size=_EDITED_ROWS).sum()
    return total / (x.size * jnp.float32(counts.vocabulary))


def inside(model: nn.Module, params: Any, x: Int[Array, "n T"], counts: Counts) -> dict[str, Any]:
    """Alignment of H = U W_Vᵀ and attention by type of token; nothing for other heads."""
    if not isinstance(model, TokenAttention):
        return {}
    ids = jnp.arange(PADDED)
    types = jax.nn.one_hot(token_types(ids, counts), len(TYPES)) * real_tokens(counts)[:, None]
    sign = jnp.where(ids % 2 == 0, 1.0, -1.0)
    directions = types * jnp.stack([sign, sign, jnp.ones_like(sign)], axis=1)
    readout = applied(model)(params, method="readout")
    norms = jnp.linalg.norm(readout, axis=1)[:, None] * jnp.linalg.norm(directions, axis=0)[None]
    alignment = (readout @ directions / jnp.maximum(norms, 1e-30)).mean(axis=0)

    def mass(row: Int[Array, " T"]) -> tuple[Float[Array, " 3"], Float[Array, " 3"]]:
        attention = applied(model)(params, row[None], method="attention")[0].mean(axis=0)
        of_type = types[row]
        by_type = attention @ of_type
        return by_type, by_type / of_type.sum(axis=0)

    by_type, by_token = lax.map(mass, x, batch_size=_ROWS)
    return {
        "alignment": alignment,
        "attention": by_type.mean(axis=0),
        # In units of uniform attention, 1/T for every token.
        "attention_per_token": LENGTH * by_token.mean(axis=0),
    }


def scores_of(model: nn.Module, params: Any, x: Int[Array, "n T"]) -> Float[Array, " n"]:
    """Φ of every sequence."""
    return lax.map(lambda row: applied(model)(params, row[None])[0], x, batch_size=_ROWS)


def accuracy(scores: Float[Array, " n"], y: Int[Array, " n"]) -> Float[Array, ""]:
    """The share of sequences whose score has the label's sign."""
    return (jnp.sign(scores).astype(y.dtype) == y).mean()


def flips_both_ways(
    head: str, params: Any, x: Int[Array, "n T"], setting: Setting
) -> tuple[int, int, int]:
    """Changes of the sign by `jaxsens.sensitivity` and by `exact_sensitivity`, and of how many."""
    model, vocabulary = HEADS[head], int(setting.counts.vocabulary)
    replace = Perturbation(Tokens(), Resample(vocabulary))
    est = sensitivity(applied(model), params, x, replace, "all", key=jax.random.key(0))
    share = exact_sensitivity(model, params, x, setting.counts)
    number = x.size * vocabulary
    return int(est.totals.sum()), round(float(share) * number), number


@functools.cache
def applied(model: nn.Module) -> Callable[..., Any]:
    """One function object per model, so that nothing is compiled twice."""
    return model.apply
