"""Blocks that JAX itself must be asked about, one by one: left out of chains for their time."""

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.incremental.blocks import (
    number,
    of_floats,
    of_integers,
    positive,
    shifted,
    unit,
    weights,
    whole,
)
from tests.incremental.layers import pool_of


def scattered_largest(x):
    """What the derivative of max pooling is made of."""
    pooled = pool_of(2, -np.inf, lax.max, strides=2)
    return jax.vjp(pooled, x)[1](lax.sin(pooled(x)))[0]


def solved(x):
    """The solution y of 2 y = x."""

    def matvec(y):
        return 2 * y

    return lax.custom_linear_solve(matvec, x, lambda _, b: b / 2, symmetric=True)


def symmetric(x):
    gram = jnp.einsum("ntc,ntd->ncd", x, x) / x.shape[1]
    return gram + jnp.eye(x.shape[-1], dtype=x.dtype)[None]


SPECIAL = {
    "copy": lambda x: jnp.array(x, copy=True),
    "igamma_grad_a": of_floats(lambda x: lax.igamma_grad_a(positive(x), positive(shifted(x)))),
    "population_count": of_integers(lambda a, b: lax.population_count(a)),
    "clz": of_integers(lambda a, b: lax.clz(a)),
    "shift_right_logical": of_integers(
        lambda a, b: lax.shift_right_logical(a, 27 + (b & 3)).astype(jnp.int32)
    ),
}  # fmt: skip

BY_FUNCTION = {
    "reduce with a function": lambda x: (
        lax.reduce(x, number(x, 0), lambda a, b: a + b * number(x, 0.5), (x.ndim - 1,))[..., None]
    ),
    "reduce of two": lambda x: x + lax.reduce(
        (x, shifted(x)), (number(x, 0), number(x, 0)),
        lambda a, b: (a[0] + b[0], a[1] + b[1]), (x.ndim - 1,),
    )[1][..., None],
    "product pooling": lambda x: pool_of(2, 1.0, lax.mul)(unit(x)),
    "pooling by a function": pool_of(2, 0.0, lambda a, b: a + b - a * b * jnp.asarray(0, a.dtype)),
    "pooled from another start": pool_of(2, 0.5, lax.max, padding="SAME"),
    "largest scattered": scattered_largest,
    "tangent of max pooling": lambda x: jax.jvp(
        pool_of(2, -np.inf, lax.max), (x,), (lax.sin(x),))[1],
    "custom_linear_solve": solved,
}  # fmt: skip

LINEAR_ALGEBRA = {
    "cholesky": of_floats(lambda x: x @ jnp.linalg.cholesky(symmetric(x))),
    "qr": of_floats(lambda x: jnp.linalg.qr(symmetric(x))[1]),
    "eigh": of_floats(lambda x: x * jnp.linalg.eigvalsh(symmetric(x))[:, None]),
    "svd": of_floats(lambda x: jnp.linalg.svd(symmetric(x), compute_uv=False)[:, None] * x),
    "lu": of_floats(lambda x: x @ jnp.triu(lax.linalg.lu(symmetric(x))[0])),
    "solve": of_floats(lambda x: jnp.swapaxes(
        jnp.linalg.solve(symmetric(x), jnp.swapaxes(x, 1, 2)), 1, 2)),
    "triangular_solve": of_floats(lambda x: lax.linalg.triangular_solve(
        symmetric(x), x, left_side=False, lower=True)),
    "triangular_solve by a clean one": of_floats(lambda x: lax.linalg.triangular_solve(
        jnp.broadcast_to(weights(x, x.shape[2], x.shape[2]) + 3 * jnp.eye(x.shape[2]),
                         (len(x), x.shape[2], x.shape[2])), x, left_side=False, lower=True)),
    "tridiagonal_solve": of_floats(lambda x: lax.linalg.tridiagonal_solve(
        unit(x[:, :, 0]), 3 + unit(x[:, :, -1]), unit(x[:, :, 0]), x)),
    "expm": of_floats(lambda x: x @ jax.scipy.linalg.expm(symmetric(unit(x)))),
    "lu_pivots_to_permutation": of_floats(lambda x: x * lax.linalg.lu_pivots_to_permutation(
        lax.linalg.lu(symmetric(x))[1], x.shape[-1]).astype(x.dtype)[:, None]),
    "eig": of_floats(lambda x: x * jnp.sort(
        lax.linalg.eig(symmetric(x), compute_left_eigenvectors=False)[0].real)[:, None]),
    "schur": of_floats(lambda x: x * jnp.trace(
        lax.linalg.schur(symmetric(x))[0], axis1=1, axis2=2)[:, None, None]),
    "hessenberg": of_floats(lambda x: jnp.abs(lax.linalg.hessenberg(symmetric(x))[0])),
    "householder_product": of_floats(lambda x: lax.linalg.householder_product(
        symmetric(x), unit(x[:, 0]))),
    "tridiagonal": of_floats(lambda x: jnp.abs(lax.linalg.tridiagonal(symmetric(x))[0])),
    "symmetric_product": of_floats(lambda x: jnp.tril(lax.linalg.symmetric_product(
        x, jnp.zeros((len(x), x.shape[1], x.shape[1]))))),
}  # fmt: skip

RANDOM = {
    "threefry noise": lambda x: x + jnp.broadcast_to(
        jax.random.normal(jax.random.key(3, impl="threefry2x32"), x.shape[1:], x.dtype), x.shape),
    "threefry seeded by value": of_floats(lambda x: x + jax.vmap(lambda r: jax.random.normal(
        jax.random.fold_in(jax.random.key(3, impl="threefry2x32"), whole(r).sum()), r.shape))(x)),
    "random_gamma": of_floats(lambda x: x + jnp.broadcast_to(jax.random.gamma(
        jax.random.split(jax.random.key(3, impl="threefry2x32"))[0], 2.0, x.shape[1:]), x.shape)),
    "rng_bit_generator": of_floats(lambda x: x + jnp.broadcast_to((lax.rng_bit_generator(
        jnp.arange(4, dtype=jnp.uint32), x.shape[1:])[1] >> 8).astype(x.dtype) / 2**24, x.shape)),
    "threefry2x32": of_floats(lambda x: x + jnp.broadcast_to(jax.extend.random.threefry_2x32(
        jnp.arange(2, dtype=jnp.uint32), jnp.arange(x[0].size, dtype=jnp.uint32)
    ).reshape(x.shape[1:]).astype(x.dtype) / 2.0**32, x.shape)),
}  # fmt: skip

RARE = {
    "special": SPECIAL, "by function": BY_FUNCTION, "linear algebra": LINEAR_ALGEBRA,
    "random": RANDOM,
}  # fmt: skip
