"""Primitives in NumPy, for `idealised`: of operands, and of what an equation says besides."""

import string
from typing import Any

import jax
import numpy as np
from scipy import special


def _divided(a, b):
    if a.dtype.kind == "f" or a.dtype.kind == "c":
        return a / b
    return np.where(b == 0, -1, np.trunc(a / np.where(b == 0, 1, b))).astype(a.dtype)


def _selected(which, *cases):
    return np.choose(which.astype(int), cases) if len(cases) != 2 else np.where(which, *cases[::-1])


ENTRIES = {
    "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "add": np.add, "add_any": np.add,
    "and": np.bitwise_and, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atan2": np.arctan2, "atanh": np.arctanh, "cbrt": np.cbrt, "ceil": np.ceil,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "complex": lambda a, b: a + 1j * b, "cos": np.cos, "cosh": np.cosh, "digamma": special.digamma,
    "div": _divided, "eq": np.equal, "erf": special.erf, "erf_inv": special.erfinv,
    "erfc": special.erfc, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "floor": np.floor,
    "ge": np.greater_equal, "gt": np.greater, "igamma": special.gammainc,
    "igammac": special.gammaincc, "imag": np.imag, "is_finite": np.isfinite, "le": np.less_equal,
    "lgamma": special.gammaln, "log": np.log, "log1p": np.log1p, "logistic": special.expit,
    "lt": np.less, "lt_to": np.less, "le_to": np.less_equal, "eq_to": np.equal, "max": np.maximum,
    "min": np.minimum, "mul": np.multiply, "ne": np.not_equal, "neg": np.negative,
    "not": np.invert, "or": np.bitwise_or, "polygamma": lambda m, x: special.polygamma(
        m.astype(int), x), "pow": np.power, "real": np.real, "regularized_incomplete_beta":
    special.betainc, "rem": np.fmod, "round": np.round, "rsqrt": lambda x: 1 / np.sqrt(x),
    "select_n": _selected, "shift_left": np.left_shift, "shift_right_arithmetic": np.right_shift,
    "sign": np.sign, "sin": np.sin, "sinh": np.sinh, "sqrt": np.sqrt, "square": np.square,
    "sub": np.subtract, "tan": np.tan, "tanh": np.tanh, "xor": np.bitwise_xor,
    "bessel_i0e": special.i0e, "bessel_i1e": special.i1e, "zeta": special.zeta,
    "nextafter": np.nextafter,
}  # fmt: skip


def _conj(inputs, params, out):
    return [np.conj(inputs[0])]


def _integer_pow(inputs, params, out):
    return [inputs[0] ** params["y"] if params["y"] >= 0 else 1 / inputs[0] ** -params["y"]]


def _same(inputs, params, out):
    return inputs


def _convert(inputs, params, out):
    (x,), kind = inputs, np.dtype(out[0].aval.dtype).kind
    if x.dtype.kind == "f" and kind in "iu":
        info = np.iinfo(out[0].aval.dtype)
        x = np.clip(np.nan_to_num(x), info.min, info.max)
    return [x != 0 if kind == "b" else x]


def _broadcast(inputs, params, out):
    x, shape = inputs[0], params["shape"]
    mid = [1] * len(shape)
    for axis, to in enumerate(params["broadcast_dimensions"]):
        mid[to] = x.shape[axis]
    return [np.broadcast_to(x.reshape(mid), shape)]


def _pad(inputs, params, out):
    x, fill = inputs
    for axis, (low, high, inner) in enumerate(params["padding_config"]):
        x = _spread(x, axis, low, high, inner, fill)
    return [x]


def _spread(x, axis, low, high, inner, fill):
    x = np.moveaxis(x, axis, 0)
    length = max(0, (len(x) - 1) * (inner + 1) + 1) if len(x) else 0
    wide = np.full((length + max(low, 0) + max(high, 0), *x.shape[1:]), fill, x.dtype)
    wide[max(low, 0) : max(low, 0) + length : inner + 1] = x
    wide = wide[max(-low, 0) : len(wide) - max(-high, 0)]
    return np.moveaxis(wide, 0, axis)


def _slice(inputs, params, out):
    bounds = (params["start_indices"], params["limit_indices"],
              params["strides"] or (1,) * inputs[0].ndim)  # fmt: skip
    return [inputs[0][tuple(map(slice, *bounds))]]


def _starts(shape, sizes, starts):
    found = [int(start) for start in starts]
    return [min(max(s, 0), n - k) for s, n, k in zip(found, shape, sizes, strict=True)]


def _dynamic_slice(inputs, params, out):
    x, *starts = inputs
    sizes = params["slice_sizes"]
    at = _starts(x.shape, sizes, starts)
    return [x[tuple(slice(s, s + k) for s, k in zip(at, sizes, strict=True))]]


def _dynamic_update_slice(inputs, params, out):
    x, new, *starts = inputs
    at, x = _starts(x.shape, new.shape, starts), x.copy()
    x[tuple(slice(s, s + k) for s, k in zip(at, new.shape, strict=True))] = new
    return [x]


def _dot_general(inputs, params, out):
    (contract, batch), letters = params["dimension_numbers"], iter(string.ascii_letters)
    names = [[""] * x.ndim for x in inputs]
    for pairs in (contract, batch):
        for a, b in zip(*pairs, strict=True):
            names[0][a] = names[1][b] = next(letters)
    names = [[name or next(letters) for name in side] for side in names]
    gone = [names[0][a] for a in (*contract[0], *batch[0])]
    free = [name for side in names for name in side if name not in gone]
    result = "".join([names[0][a] for a in batch[0]] + free)
    return [np.einsum(f"{''.join(names[0])},{''.join(names[1])}->{result}", *inputs)]


def _conv(inputs, params, out):
    (x, kernel), rank = inputs, inputs[0].ndim - 2
    lhs, rhs, order = params["dimension_numbers"]
    x, kernel = x.transpose(lhs), kernel.transpose(rhs)  # N C …, O I …
    spans = []
    for a in range(rank):
        low, high = params["padding"][a]
        x = _spread(x, a + 2, 0, 0, params["lhs_dilation"][a] - 1, 0)
        x = _spread(x, a + 2, low, high, 0, 0)
        kernel = _spread(kernel, a + 2, 0, 0, params["rhs_dilation"][a] - 1, 0)
        spans.append(kernel.shape[a + 2])
    assert params["batch_group_count"] == 1
    views = np.lib.stride_tricks.sliding_window_view(x, spans, tuple(range(2, 2 + rank)))
    views = views[(..., *(slice(None, None, s) for s in params["window_strides"]),
                   *[slice(None)] * rank)]  # fmt: skip
    groups = params["feature_group_count"]
    views = views.reshape(len(views), groups, -1, *views.shape[2:])
    kernel = kernel.reshape(groups, -1, *kernel.shape[1:])
    places, inner = string.ascii_uppercase[:rank], string.ascii_lowercase[:rank]
    found = np.einsum(f"zyx{places}{inner},ywx{inner}->zyw{places}", views, kernel, optimize=True)
    found = found.reshape(len(found), -1, *found.shape[3:])
    return [found.transpose(np.argsort(order))]


def _pooled(combine, nothing):
    def pool(inputs, params, out):
        (x,) = inputs
        fill = nothing if x.dtype.kind == "f" else np.array(0, x.dtype)
        sizes = params["window_dimensions"]
        ones = (1,) * x.ndim
        base, dilation = params["base_dilation"] or ones, params["window_dilation"] or ones
        for axis, (low, high) in enumerate(params["padding"]):
            x = _spread(x, axis, 0, 0, base[axis] - 1, fill)
            x = _spread(x, axis, low, high, 0, fill)
        spans = [(k - 1) * d + 1 for k, d in zip(sizes, dilation, strict=True)]
        views = np.lib.stride_tricks.sliding_window_view(x, spans)
        views = views[(*(slice(None, None, s) for s in params["window_strides"]),
                       *(slice(None, None, d) for d in dilation))]  # fmt: skip
        return [combine.reduce(views, axis=tuple(range(x.ndim, 2 * x.ndim)))]

    return pool


def _reduced(ufunc):
    return lambda inputs, params, out: [ufunc.reduce(inputs[0], axis=tuple(params["axes"]))]


def _extreme(find):
    return lambda inputs, params, out: [find(inputs[0], axis=params["axes"][0])]


def _running(ufunc):
    def run(inputs, params, out):
        (x,), axis = inputs, params["axis"]
        if params["reverse"]:
            return [np.flip(ufunc.accumulate(np.flip(x, axis), axis=axis), axis)]
        return [ufunc.accumulate(x, axis=axis)]

    return run


def _sort(inputs, params, out):
    axis, keys = params["dimension"], inputs[: params["num_keys"]]
    order = np.lexsort(keys[::-1], axis=axis)
    return [np.take_along_axis(x, order, axis) for x in inputs]


def _top_k(inputs, params, out):
    order = np.argsort(-inputs[0], axis=-1, kind="stable")[..., : out[0].aval.shape[-1]]
    return [np.take_along_axis(inputs[0], order, -1), order]


def _iota(inputs, params, out):
    shape, axis = params["shape"], params["dimension"]
    line = np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return [np.broadcast_to(line, shape)]


def _concatenate(inputs, params, out):
    return [np.concatenate(inputs, axis=params["dimension"])]


def _split(inputs, params, out):
    return np.split(inputs[0], np.cumsum(params["sizes"])[:-1], axis=params["axis"])


def _reshape(inputs, params, out):
    return [inputs[0].reshape(out[0].aval.shape)]


def _gather(inputs, params, out):
    x, indices = inputs
    dims, sizes = params["dimension_numbers"], params["slice_sizes"]
    batch, where = indices.shape[:-1], np.indices(indices.shape[:-1])
    starts = [np.zeros(batch, int)] * x.ndim
    for number, axis in enumerate(dims.start_index_map):
        starts[axis] = indices[..., number].astype(int)
    for axis, b in zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True):
        starts[axis] = where[b]
    # Of the slices only the axes that are kept have a length.
    gone = (*dims.collapsed_slice_dims, *dims.operand_batching_dims)
    kept = [axis for axis in range(x.ndim) if axis not in gone]
    inside, at = np.ones(batch, bool), []
    for axis, (start, n, size) in enumerate(zip(starts, x.shape, sizes, strict=True)):
        inside &= (start >= 0) & (start <= n - size)
        first = np.clip(start, 0, n - size).reshape(*batch, *[1] * len(kept))
        along = [1] * len(kept)
        if axis in kept:
            along[kept.index(axis)] = size
        at.append(first + np.arange(size if axis in kept else 1).reshape(along))
    found = x[tuple(at)]
    if params["mode"] == jax.lax.GatherScatterMode.FILL_OR_DROP:
        found = np.where(inside.reshape(*batch, *[1] * len(kept)), found, _fill(params, x))
    places = [axis for axis in range(found.ndim) if axis not in dims.offset_dims]
    return [np.moveaxis(found, range(found.ndim), (*places, *dims.offset_dims))]


def _fill(params, x):
    value = params["fill_value"]
    return value if value is not None else (np.nan if x.dtype.kind == "f" else 0)


def _scattered(combine):
    def scatter(inputs, params, out):
        x, indices, updates = inputs
        dims, x = params["dimension_numbers"], x.copy()
        clip = params["mode"] == jax.lax.GatherScatterMode.CLIP
        places = [a for a in range(updates.ndim) if a not in dims.update_window_dims]
        gone = (*dims.inserted_window_dims, *dims.operand_batching_dims)
        kept = [a for a in range(x.ndim) if a not in gone]
        sizes = [1] * x.ndim
        for axis, a in zip(kept, dims.update_window_dims, strict=True):
            sizes[axis] = updates.shape[a]
        for at in np.ndindex(*indices.shape[:-1]):
            start = [0] * x.ndim
            for number, axis in enumerate(dims.scatter_dims_to_operand_dims):
                start[axis] = int(indices[at][number])
            pairs = zip(dims.operand_batching_dims, dims.scatter_indices_batching_dims, strict=True)
            for a, b in pairs:
                start[a] = at[b]
            if not all(0 <= s <= n - k for s, n, k in zip(start, x.shape, sizes, strict=True)):
                if not clip:
                    continue
                start = _starts(x.shape, sizes, start)
            index: list[Any] = [slice(None)] * updates.ndim
            for place, i in zip(places, at, strict=True):
                index[place] = i
            where = tuple(slice(s, s + k) for s, k in zip(start, sizes, strict=True))
            x[where] = combine(x[where], updates[tuple(index)].reshape(sizes))
        return [x]

    return scatter


def _platform_index(inputs, params, out):
    platforms = params["platforms"]
    return [next(i for i, names in enumerate(platforms) if names is None or "cpu" in names)]


def _fft(inputs, params, out):
    (x,), sizes = inputs, params["fft_lengths"]
    axes = tuple(range(x.ndim - len(sizes), x.ndim))
    kind = params["fft_type"].name.lower()
    names = {"fft": np.fft.fftn, "ifft": np.fft.ifftn, "rfft": np.fft.rfftn, "irfft": np.fft.irfftn}
    return [names[kind](x, sizes, axes)]


def _bitcast(inputs, params, out):
    """Bits are those of the dtypes that the function has."""
    (x,), new = inputs, np.dtype(out[0].aval.dtype)
    x = x.astype(np.float32) if x.dtype.kind == "f" else x
    return [np.ascontiguousarray(x).view(new).reshape(out[0].aval.shape)]


OTHERS = {
    "bitcast_convert_type": _bitcast,
    "conj": _conj, "integer_pow": _integer_pow, "convert_element_type": _convert,
    **dict.fromkeys(("stop_gradient", "optimization_barrier", "copy", "copy_p", "device_put",
                     "name", "reduce_precision", "sharding_constraint"), _same),
    "broadcast_in_dim": _broadcast, "pad": _pad, "slice": _slice, "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice, "dot_general": _dot_general,
    "conv_general_dilated": _conv, "reduce_window_sum": _pooled(np.add, 0),
    "reduce_window_max": _pooled(np.maximum, -np.inf),
    "reduce_window_min": _pooled(np.minimum, np.inf), "reduce_sum": _reduced(np.add),
    "reduce_prod": _reduced(np.multiply), "reduce_max": _reduced(np.maximum),
    "reduce_min": _reduced(np.minimum), "reduce_and": _reduced(np.bitwise_and),
    "reduce_or": _reduced(np.bitwise_or), "reduce_xor": _reduced(np.bitwise_xor),
    "argmax": _extreme(np.argmax), "argmin": _extreme(np.argmin), "cumsum": _running(np.add),
    "cumprod": _running(np.multiply), "cummax": _running(np.maximum),
    "cummin": _running(np.minimum), "cumlogsumexp": _running(np.logaddexp), "sort": _sort,
    "top_k": _top_k, "approx_top_k": _top_k, "iota": _iota, "concatenate": _concatenate,
    "split": _split, "reshape": _reshape, "squeeze": _reshape, "expand_dims": _reshape,
    "transpose": lambda inputs, params, out: [inputs[0].transpose(params["permutation"])],
    "rev": lambda inputs, params, out: [np.flip(inputs[0], params["dimensions"])],
    "tile": lambda inputs, params, out: [np.tile(inputs[0], params["reps"])],
    "stack": lambda inputs, params, out: [np.stack(inputs, params["axis"])],
    "unstack": lambda inputs, params, out: list(np.moveaxis(inputs[0], params["axis"], 0)),
    "gather": _gather, "scatter": _scattered(lambda old, new: new),
    "scatter-add": _scattered(np.add), "scatter-mul": _scattered(np.multiply),
    "scatter-sub": _scattered(np.subtract), "scatter-max": _scattered(np.maximum),
    "scatter-min": _scattered(np.minimum),
    "platform_index": _platform_index, "fft": _fft,
}  # fmt: skip
