"""Layers as people write them, by family: functions of one batch (n, …, c), as in `blocks`."""

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsens import attention
from tests.incremental.blocks import (
    BINARY,
    INDEXED,
    INTEGER,
    MOVED,
    REDUCTIONS,
    RUNNING,
    SORTING,
    UNARY,
    below,
    number,
    of_floats,
    positive,
    shifted,
    weights,
)

# ---------------------------------------------------------------- sums of products

PRODUCTS = {
    "dense": lambda x: x @ weights(x, x.shape[-1], 3),
    "dense to one": lambda x: x @ weights(x, x.shape[-1], 1),
    "mlp": lambda x: jax.nn.gelu(x @ weights(x, x.shape[-1], 5)) @ weights(x, 5, x.shape[-1]),
    "mixed rows": lambda x: jnp.einsum("nt...,ts->ns...", x, weights(x, x.shape[1], 5)),
    "mixed rows, as many": lambda x: jnp.einsum(
        "nt...,ts->ns...", x, weights(x, x.shape[1], x.shape[1])),
    "mixed columns": lambda x: jnp.einsum("nhw...,wv->nhv...", x, weights(x, x.shape[2], 4)),
    "batched by row": lambda x: jnp.einsum(
        "nt...c,tcd->nt...d", x, weights(x, x.shape[1], x.shape[-1], 2)),
    "batched by column": lambda x: jnp.einsum(
        "nhw...,wh->nhw...", x, weights(x, *x.shape[2:0:-1])),
    "with a clean left side": lambda x: jnp.einsum(
        "st,nt...->ns...", weights(x, 4, x.shape[1]), x),
    "gram matrix": lambda x: jnp.einsum("nt...c,ns...c->nt...s", x, x),
    "covariance": lambda x: number(x, 0.1) * jnp.einsum("nt...c,nt...d->nc...d", x, lax.tanh(x)),
    "inner products": lambda x: jnp.einsum("nt...c,nt...c->nt...", x, lax.sin(x))[..., None] + x,
    "edited weights": lambda x: jnp.einsum("nt...c,nsc->nt...s", x, x.reshape(
        len(x), -1, x.shape[-1])[:, :3]),
}  # fmt: skip


def conv(x, kernel, strides=1, padding="SAME", **options):
    rank = x.ndim - 2
    letters = "DHW"[-rank:]
    dims = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    for name in ("lhs_dilation", "rhs_dilation"):
        if name in options:
            options[name] = (options[name],) * rank
    if not isinstance(padding, str):
        padding = (padding,) * rank
    return lax.conv_general_dilated(
        x, kernel, (strides,) * rank, padding, dimension_numbers=dims, **options
    )


def conv_of(size, out=None, groups=1, **options):
    """A convolution over all axes between the batch and the channels."""

    def convolved(x):
        channels = x.shape[-1]
        count = channels if groups == "all" else groups
        kernel = weights(x, *[size] * (x.ndim - 2), channels // count, out or channels)
        return conv(x, kernel, feature_group_count=count, **options)

    return convolved


def image_patches(x):
    return lax.conv_general_dilated_patches(
        x, (2,) * (x.ndim - 2), (1,) * (x.ndim - 2), "VALID",
        dimension_numbers=(("NHWC", "OIHW", "NHWC") if x.ndim == 4 else ("NWC", "OIW", "NWC")),
    )  # fmt: skip


def conv_transposed(x):
    letters = "HW"[-(x.ndim - 2) :]
    dims = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    kernel = weights(x, *[2] * (x.ndim - 2), x.shape[-1], 3)
    return lax.conv_transpose(x, kernel, (2,) * (x.ndim - 2), "SAME", dimension_numbers=dims)


CONVOLUTIONS = {
    "conv 1": conv_of(1, out=4),
    "conv 3": conv_of(3),
    "conv 3, valid": conv_of(3, padding="VALID"),
    "conv 2": conv_of(2),
    "conv 3, stride 2": conv_of(3, strides=2),
    "conv 3, stride 2, padding 1": conv_of(3, strides=2, padding=(1, 1)),
    "conv 2, stride 2": conv_of(2, out=4, strides=2, padding="VALID"),
    "conv 1, stride 2": conv_of(1, strides=2, padding="VALID"),
    "conv 2, stride 3": conv_of(2, strides=3),
    "conv 5": conv_of(5),
    "conv 3, dilated": conv_of(3, rhs_dilation=2),
    "conv 3 of a dilated array": conv_of(3, lhs_dilation=2, padding=(1, 1)),
    "conv 3, stride and dilation": conv_of(3, strides=2, rhs_dilation=2, padding=(2, 2)),
    "conv 3, uneven padding": conv_of(3, padding=(0, 2)),
    "conv 3, causal": conv_of(3, padding=(2, 0)),
    "conv 2, cropped": conv_of(2, padding=(-1, 1)),
    "conv 3, cropped, stride 2": conv_of(3, padding=(-1, 2), strides=2),
    "conv 3, wide padding": conv_of(3, padding=(4, 3)),
    "depthwise": conv_of(3, groups="all"),
    "depthwise, twice as many": lambda x: conv_of(3, groups="all", out=2 * x.shape[-1])(x),
    "grouped": lambda x: conv_of(3, groups=2)(jnp.concatenate([x, x], axis=-1)),
    "conv_transpose": conv_transposed,
    "patches by convolution": image_patches,
    "conv of rows as channels": lambda x: jnp.swapaxes(conv_of(3)(jnp.swapaxes(x, 1, -1)), 1, -1),
}  # fmt: skip


def pool_of(size, start, combine, strides=1, padding="VALID", **options):
    def pooled(x):
        window, steps = ((1, *[n] * (x.ndim - 2), 1) for n in (size, strides))
        dilations = {name: (1, *[n] * (x.ndim - 2), 1) for name, n in options.items()}
        pads = padding if isinstance(padding, str) else ((0, 0), *[padding] * (x.ndim - 2), (0, 0))
        return lax.reduce_window(x, x.dtype.type(start), combine, window, steps, pads, **dilations)

    return pooled


POOLING = {
    "max pooling": pool_of(2, -np.inf, lax.max, strides=2),
    "max pooling, overlapping": pool_of(3, -np.inf, lax.max, strides=2, padding="SAME"),
    "min pooling": pool_of(3, np.inf, lax.min),
    "sum pooling": pool_of(2, 0.0, lax.add, strides=2),
    "sum pooling, same": pool_of(3, 0.0, lax.add, padding="SAME"),
    "sum pooling, padded": pool_of(3, 0.0, lax.add, strides=2, padding=(1, 2)),
    "max pooling, wide steps": pool_of(2, -np.inf, lax.max, strides=3, padding="SAME"),
    "max pooling, dilated": pool_of(2, -np.inf, lax.max, window_dilation=2),
    "sum pooling of a dilated array": pool_of(2, 0.0, lax.add, base_dilation=2),
}  # fmt: skip

# ---------------------------------------------------------------- control flow and calls


def scanned(x, reverse=False):
    def step(state, row):
        state = lax.tanh(state * number(x, 0.5) + row)
        return state, state + row

    rows = jnp.moveaxis(x, 1, 0)
    last, states = lax.scan(step, jnp.zeros_like(rows[0]), rows, reverse=reverse)
    return jnp.moveaxis(states, 0, 1) + last[:, None]


@jax.custom_jvp
def own_jvp(x):
    return jnp.sin(x)


own_jvp.defjvp(lambda primals, tangents: (own_jvp(*primals), tangents[0]))


@jax.custom_vjp
def own_vjp(x):
    return jnp.cos(x)


own_vjp.defvjp(lambda x: (own_vjp(x), x), lambda x, g: (g,))


LOOPS = {
    "scan": scanned,
    "scan backwards": lambda x: scanned(x, reverse=True),
    "scan of a clean sequence": lambda x: lax.scan(
        lambda s, a: (lax.tanh(s + a), None), x, weights(x, 3))[0],
    "map": lambda x: jnp.moveaxis(lax.map(lax.sin, jnp.moveaxis(x, 1, 0)), 0, 1),
    "while": lambda x: lax.while_loop(
        lambda s: s[1] < 3, lambda s: (lax.tanh(s[0]) * 2, s[1] + 1), (x, 0))[0],
    "while by value": lambda x: jax.vmap(lambda row: lax.while_loop(
        lambda s: jnp.abs(s).max() > 1, lambda s: s / 2, row))(x),
    "fori_loop": lambda x: lax.fori_loop(0, 3, lambda i, s: s + lax.sin(s), x),
    "fori_loop over rows": lambda x: lax.fori_loop(
        0, x.shape[1] - 1, lambda i, s: s.at[:, i + 1].add(s[:, i] / 2), x),
    "cond": lambda x: lax.cond(jnp.array(True), lax.sin, lax.cos, x),
    "cond by value": lambda x: jax.vmap(
        lambda r: lax.cond(r.sum() > 0, lax.sin, lax.cos, r))(x),
    "switch": lambda x: jax.vmap(lambda r: lax.switch(
        jnp.argmax(r.ravel()[:3]), [lax.sin, lax.cos, lax.tanh], r))(x),
    "custom_jvp": own_jvp,
    "custom_vjp": own_vjp,
    "remat of jit": lambda x: jax.checkpoint(jax.jit(jax.nn.relu6))(x),
    "named": lambda x: jax.ad_checkpoint.checkpoint_name(x, "here"),
    "gradient": lambda x: jax.grad(lambda y: (jnp.sin(y) ** 2).sum())(x),
    "platform_dependent": lambda x: lax.platform_dependent(x, cpu=lax.sin, default=lax.cos),
    "device_put": jax.device_put,
    "vmap over rows": lambda x: jax.vmap(
        lambda r: r / (1 + jnp.abs(r).sum(-1, keepdims=True)), 1, 1)(x),
}  # fmt: skip

# ---------------------------------------------------------------- images


def partitioned(x, size=2):
    """Windows of Swin as rows of their own: (n, windows, size² c)."""
    n, h, w, c = x.shape
    x = x.reshape(n, h // size, size, w // size, size, c)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(n, -1, size * size * c)


def merged(rows, h, w, size=2):
    x = rows.reshape(len(rows), h // size, w // size, size, size, -1)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(len(rows), h, w, -1)


def window_mlp(x, shift=0, size=2):
    moved = jnp.roll(x, (-shift, -shift), (1, 2)) if shift else x
    rows = partitioned(moved, size)
    rows = lax.tanh(rows @ weights(x, rows.shape[-1], 6)) @ weights(x, 6, rows.shape[-1])
    return jnp.roll(merged(rows, *x.shape[1:3], size), (shift, shift), (1, 2))


def window_linear(x):
    rows = partitioned(jnp.roll(x, (-1, -1), (1, 2)))
    return merged(rows @ weights(x, rows.shape[-1], rows.shape[-1]), *x.shape[1:3])


def space_to_depth(x, size=2):
    n, h, w, c = x.shape
    x = x.reshape(n, h // size, size, w // size, size, c)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(n, h // size, w // size, size * size * c)


def pixel_shuffle(x, size=2):
    n, h, w, c = x.shape
    x = x.reshape(n, h, w, size, size, c // size**2).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(n, h * size, w * size, -1)


def squeeze_excite(x):
    scale = jax.nn.sigmoid(x.mean(axis=(1, 2)) @ weights(x, x.shape[-1], x.shape[-1]))
    return x * scale[:, None, None]


def group_norm(x):
    n, h, w, c = x.shape
    x = x.reshape(n, h, w, 2, c // 2)
    return jax.nn.standardize(x, axis=(1, 2, 4)).reshape(n, h, w, c)


IMAGES = {
    "windows, mlp": window_mlp,
    "shifted windows, mlp": lambda x: window_mlp(x, 1),
    "shifted windows of three": lambda x: window_mlp(x, 1, 3),
    "shifted windows, linear": window_linear,
    "space to depth": space_to_depth,
    "pixel shuffle": pixel_shuffle,
    "squeeze and excite": squeeze_excite,
    "group norm": group_norm,
    "shifted windows of four": lambda x: window_mlp(x, 2, 4),
    "shifted windows of six": lambda x: window_mlp(x, 3, 6),
    "resize nearest": lambda x: jax.image.resize(
        x, (len(x), x.shape[1] * 2, x.shape[2] * 2, x.shape[3]), "nearest"),
    "resize bilinear": of_floats(lambda x: jax.image.resize(
        x, (len(x), x.shape[1] // 2, x.shape[2] // 2, x.shape[3]), "bilinear")),
    "rot90": lambda x: jnp.rot90(x, axes=(1, 2)),
    "mixed rows, columns": lambda x: jnp.einsum(
        "nhwc,hi,wj->nijc", x, weights(x, x.shape[1], 4), weights(x, x.shape[2], 5)),
    "mean of both axes": lambda x: x - x.mean(axis=(1, 2), keepdims=True),
    "conv, shifted by two": lambda x: jnp.roll(conv_of(3)(x), (1, 2), (1, 2)),
    "channels first": lambda x: lax.conv_general_dilated(
        x.transpose(0, 3, 1, 2), weights(x, 4, x.shape[3], 3, 3), (1, 1), "SAME"
    ).transpose(0, 2, 3, 1),
    "inception": lambda x: jnp.concatenate(
        [conv_of(1)(x), conv_of(3)(x), pool_of(3, -np.inf, lax.max, padding="SAME")(x)], axis=-1),
    "a strided convolution and its rolled self": lambda x: jnp.concatenate(
        [y := conv_of(3, strides=2, padding=(1, 1))(x), jnp.roll(y, 1, axis=1)], axis=-1),
    "local convolution": lambda x: lax.conv_general_dilated_local(
        x, weights(x, x.shape[1] - 1, x.shape[2] - 1, 4 * x.shape[3], 2), (1, 1), "VALID",
        (2, 2), dimension_numbers=("NHWC", "HWIO", "NHWC")),
}  # fmt: skip

# ---------------------------------------------------------------- rows


def heads(x, num=2):
    e = max(1, x.shape[-1] // num)
    return (jnp.einsum("ntd,dhe->nthe", x, weights(x, x.shape[-1], num, e) + i / 4)
            for i in range(3))  # fmt: skip


def written_attention(x, mask=None):
    q, k, v = heads(x)
    logits = jnp.einsum("nqhe,nthe->nhqt", q, k) / number(x, 2)
    if mask is not None:
        logits = jnp.where(mask(x.shape[1])[None, None], logits, jnp.finfo(x.dtype).min)
    weighted = jnp.einsum("nhqt,nthe->nqhe", jax.nn.softmax(logits), v)
    return weighted.reshape(*x.shape[:2], -1)


def linear_attention(x):
    q, k, v = (positive(a) for a in heads(x))
    summed = jnp.einsum("nthe,nthf->nhef", k, v)
    norm = jnp.einsum("nthe,nhe->nth", q, k.sum(axis=1))
    return (jnp.einsum("nthe,nhef->nthf", q, summed) / norm[..., None]).reshape(*x.shape[:2], -1)


def causal(length):
    return jnp.tri(length, dtype=bool)


def rotary(x):
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1], dtype=x.dtype)[None, :, None] * number(x, 0.3)
    a, b = x[..., :half], x[..., half : 2 * half]
    return jnp.concatenate(
        [a * jnp.cos(angles) - b * jnp.sin(angles), a * jnp.sin(angles) + b * jnp.cos(angles)], -1
    )


ROWS = {
    "attention": lambda x: attention(*heads(x)).reshape(*x.shape[:2], -1),
    "attention, causal": lambda x: attention(
        *heads(x), visible=causal(x.shape[1])[None], causal=True).reshape(*x.shape[:2], -1),
    "attention, relu": lambda x: attention(*heads(x), activation="relu").reshape(*x.shape[:2], -1),
    "attention by hand": written_attention,
    "attention by hand, causal": lambda x: written_attention(x, causal),
    "attention by hand, banded": lambda x: written_attention(
        x, lambda n: jnp.abs(jnp.arange(n)[:, None] - jnp.arange(n)[None]) < 3),
    "dot_product_attention": lambda x: jax.nn.dot_product_attention(*heads(x)).reshape(
        *x.shape[:2], -1),
    "dot_product_attention, causal": lambda x: jax.nn.dot_product_attention(
        *heads(x), is_causal=True).reshape(*x.shape[:2], -1),
    "linear attention": linear_attention,
    "transformer block": lambda x: (
        y := x + written_attention(jax.nn.standardize(x)) @ weights(
            x, 2 * max(1, x.shape[-1] // 2), x.shape[-1])
    ) + jax.nn.gelu(jax.nn.standardize(y) @ weights(x, x.shape[-1], 6)) @ weights(
        x, 6, x.shape[-1]),
    "mixer": lambda x: x + jnp.einsum("ntd,ts->nsd", jax.nn.gelu(x), weights(
        x, x.shape[1], x.shape[1])),
    "rotary": rotary,
}  # fmt: skip

COMPLEX = {
    "fft": of_floats(lambda x: jnp.abs(jnp.fft.fft(x, axis=-1))),
    "fft over rows": of_floats(lambda x: jnp.fft.fft(x, axis=1).real / x.shape[1]),
    "rfft filter": of_floats(lambda x: jnp.fft.irfft(
        jnp.fft.rfft(x, axis=1) * 0.5, n=x.shape[1], axis=1)),
    "complex entries": of_floats(lambda x: jnp.conj(
        lax.complex(x, shifted(x)) * (1 + 2j)).imag + lax.real(lax.complex(x, x))),
}  # fmt: skip

TO_ROWS = {
    "pixels": lambda x: x.reshape(len(x), -1, x.shape[-1]),
    "rows of pixels": lambda x: x.reshape(len(x), x.shape[1], -1),
    "windows": partitioned,
    "moved windows of four": lambda x: partitioned(jnp.roll(x, (-2, -2), (1, 2)), 4),
    "moved windows of three": lambda x: partitioned(jnp.roll(x, (-1, -1), (1, 2)), 3),
}


def sorted_beside_convolution(x):
    """Two operands with one window, of which the edit reaches more in the second."""
    key = x + below(x) + (below(x, 1, 2) if x.ndim == 4 else x)
    return sum(lax.sort_key_val(lax.tanh(key), lax.tanh(conv_of(2, padding=(1, 0))(x))))


#: What keeps a window a window.
KEEPING = {
    name: table[name]
    for table, names in (
        (UNARY, ("neg", "tanh", "relu")),
        (BINARY, ("twice", "residual", "times a weight", "plus a bias", "select_n")),
        (REDUCTIONS, ("reduce_sum", "layer norm", "argmax")),
        (RUNNING, ("cumsum", "cumsum over rows")),
        (SORTING, ("sort of two", "sort of two keys")),
        (LOOPS, ("scan",)),
    )
    for name in names
} | {"sorted beside a convolution": sorted_beside_convolution}

#: All families, and those of which a window stays a window.
ALL = {
    "unary": UNARY, "binary": BINARY, "integer": INTEGER, "reductions": REDUCTIONS,
    "running": RUNNING, "sorting": SORTING, "indexed": INDEXED, "loops": LOOPS, "complex": COMPLEX,
    "moved": MOVED, "products": PRODUCTS, "convolutions": CONVOLUTIONS, "pooling": POOLING,
}  # fmt: skip
WINDOWED = {"moved": MOVED, "convolutions": CONVOLUTIONS, "products": PRODUCTS, "pooling": POOLING,
          "keeping": KEEPING}  # fmt: skip
