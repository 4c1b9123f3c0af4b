"""Operations on single entries: arithmetic, comparisons, activations, casts."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxsens.adapters.operations.dtypes import as_dtype


def _same(x: Any, *_: Any, **__: Any) -> Any:
    return x


def _cast(x: Any, *args: Any, dtype: Any = None, **_: Any) -> Any:
    """`to` and its like: among what it takes only a dtype changes anything here."""
    found = [each for each in (*args, dtype) if str(each).startswith("torch.")]
    dtypes = [each for each in found if type(each).__name__ == "dtype"]
    if not dtypes and args and hasattr(args[0], "dtype"):
        return x.astype(args[0].dtype)
    return x.astype(as_dtype(dtypes[0])) if dtypes else x


def _scaled(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    return y if alpha == 1 else alpha * y


def _divide(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return jnp.true_divide(x, y)
    return jnp.floor_divide(x, y) if rounding_mode == "floor" else jnp.trunc(jnp.true_divide(x, y))


def _clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else jnp.maximum(x, low)
    return x if high is None else jnp.minimum(x, high)


def _gelu(x: Any, *, approximate: str = "none") -> Any:
    return jax.nn.gelu(x, approximate=approximate == "tanh")


def _softplus(x: Any, beta: float = 1, threshold: float = 20) -> Any:
    return jnp.where(x * beta > threshold, x, jax.nn.softplus(x * beta) / beta)


def _elu(x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    return scale * jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0) * input_scale))


def _round(x: Any, *, decimals: int = 0) -> Any:
    return jnp.round(x, decimals)


def _dropout(x: Any, p: float, train: bool) -> Any:
    if train:
        raise ValueError(f"dropout of {p} is on, whatever module.eval() says: switch it off")
    return x


def _where(condition: Any, x: Any, y: Any) -> Any:
    return jnp.where(condition, x, y)


def _masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return jnp.where(mask, jnp.asarray(value, x.dtype), x)


def _pow(x: Any, y: Any) -> Any:
    is_whole = isinstance(y, float) and y.is_integer() and hasattr(x, "dtype")
    return jnp.power(x, int(y) if is_whole and jnp.issubdtype(x.dtype, jnp.inexact) else y)


def _nan_to_num(x: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    return jnp.nan_to_num(x, nan=nan or 0.0, posinf=posinf, neginf=neginf)


OPERATIONS: dict[str, Callable[..., Any]] = {
    # Nothing changes.
    **dict.fromkeys(("clone", "alias", "detach", "detach_", "contiguous", "lift_fresh"), _same),
    **dict.fromkeys(("lift_fresh_copy", "lift", "positive", "_conj", "resolve_conj"), _same),
    **dict.fromkeys(("to", "_to_copy", "type_as", "_to_cpu"), _cast),
    "copy": lambda x, source, *_: jnp.broadcast_to(source, x.shape).astype(x.dtype),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout"), _dropout),
    "native_dropout": lambda x, p, train: (_dropout(x, p, bool(train)), None),
    # One operand.
    "abs": jnp.abs,
    "acos": jnp.arccos,
    "acosh": jnp.arccosh,
    "asin": jnp.arcsin,
    "asinh": jnp.arcsinh,
    "atan": jnp.arctan,
    "atanh": jnp.arctanh,
    "bitwise_not": jnp.bitwise_not,
    "ceil": jnp.ceil,
    "cos": jnp.cos,
    "cosh": jnp.cosh,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "erfinv": lax.erf_inv,
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "floor": jnp.floor,
    "isfinite": jnp.isfinite,
    "isinf": jnp.isinf,
    "isnan": jnp.isnan,
    "log": jnp.log,
    "log10": jnp.log10,
    "log1p": jnp.log1p,
    "log2": jnp.log2,
    "logical_not": jnp.logical_not,
    "nan_to_num": _nan_to_num,
    "neg": jnp.negative,
    "reciprocal": jnp.reciprocal,
    "round": _round,
    "rsqrt": lambda x: lax.rsqrt(jnp.asarray(x, jnp.result_type(x, jnp.float16))),
    "sgn": jnp.sign,
    "sign": jnp.sign,
    "sin": jnp.sin,
    "sinh": jnp.sinh,
    "sqrt": jnp.sqrt,
    "square": jnp.square,
    "tan": jnp.tan,
    "tanh": jnp.tanh,
    "trunc": jnp.trunc,
    # Activations.
    "celu": lambda x, alpha=1.0: jax.nn.celu(x, alpha),
    "elu": _elu,
    "gelu": _gelu,
    "hardsigmoid": jax.nn.hard_sigmoid,
    "hardswish": jax.nn.hard_swish,
    "hardtanh": lambda x, low=-1, high=1: jnp.clip(x, low, high),
    "leaky_relu": lambda x, slope=0.01: jnp.where(x > 0, x, slope * x),
    "log_sigmoid": jax.nn.log_sigmoid,
    "mish": jax.nn.mish,
    "prelu": lambda x, weight: jnp.where(
        x > 0, x, x * weight.reshape(-1, *(1,) * max(0, x.ndim - 2))
    ),
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "selu": jax.nn.selu,
    "sigmoid": jax.nn.sigmoid,
    "silu": jax.nn.silu,
    "softplus": _softplus,
    "softsign": jax.nn.soft_sign,
    # Two operands.
    "add": lambda x, y, alpha=1: jnp.add(x, _scaled(x, y, alpha=alpha)),
    "sub": lambda x, y, alpha=1: jnp.subtract(x, _scaled(x, y, alpha=alpha)),
    "rsub": lambda x, y, alpha=1: jnp.subtract(y, _scaled(y, x, alpha=alpha)),
    "mul": jnp.multiply,
    "div": _divide,
    "true_divide": jnp.true_divide,
    "floor_divide": jnp.floor_divide,
    "remainder": jnp.remainder,
    "fmod": jnp.fmod,
    "pow": _pow,
    "atan2": jnp.arctan2,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
    "fmax": jnp.fmax,
    "fmin": jnp.fmin,
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
    "logical_and": jnp.logical_and,
    "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor,
    "bitwise_and": jnp.bitwise_and,
    "bitwise_or": jnp.bitwise_or,
    "bitwise_xor": jnp.bitwise_xor,
    "__and__": jnp.bitwise_and,
    "__or__": jnp.bitwise_or,
    "__xor__": jnp.bitwise_xor,
    # Three.
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": lambda x, high: jnp.minimum(x, high),
    "lerp": lambda x, y, weight: x + weight * (y - x),
    "addcmul": lambda x, a, b, value=1: x + value * a * b,
    "addcdiv": lambda x, a, b, value=1: x + value * a / b,
    "where": _where,
    "masked_fill": _masked_fill,
}
