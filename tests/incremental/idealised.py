"""A jaxpr in NumPy, with every float a float64: what a function says, without XLA and its rounding.

Two ways to compute the same thing then agree to some 1e-12 or are not the same thing, and nothing
is compiled, which is what takes the time of a small function. What is not written out here is
asked of JAX, in float64 where it can be and in float32 where a function inside has its own dtypes.
"""

import functools
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from tests.incremental.numpy_operations import ENTRIES, OTHERS

_CALLS = ("jit", "closed_call", "custom_jvp_call", "custom_vjp_call", "checkpoint", "remat2")


def evaluate(closed, *arguments):
    """The results of a closed jaxpr, a list of NumPy arrays."""
    with np.errstate(all="ignore"):
        return _run(closed.jaxpr, closed.consts, [_ideal(each) for each in arguments])


def _ideal(value: Any):
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return value
    value = np.asarray(value)
    return value.astype(_dtype(value.dtype), copy=False)


@functools.cache
def _dtype(dtype):
    if jnp.issubdtype(dtype, jnp.floating):
        return np.dtype(np.float64)
    return np.dtype(np.complex128) if jnp.issubdtype(dtype, jnp.complexfloating) else dtype


def _run(jaxpr, consts, arguments):
    known = dict(zip(jaxpr.constvars, map(_ideal, consts), strict=True))
    known.update(zip(jaxpr.invars, arguments, strict=True))

    def read(atom):
        return _ideal(atom.val) if isinstance(atom, Literal) else known[atom]

    for equation in jaxpr.eqns:
        results = _equation(equation, [read(atom) for atom in equation.invars])
        for var, result in zip(equation.outvars, results, strict=True):
            known[var] = _checked(result, var.aval)
    return [read(atom) for atom in jaxpr.outvars]


def _checked(result, aval):
    if jnp.issubdtype(aval.dtype, jax.dtypes.extended):
        return result
    result = np.asarray(result).astype(_dtype(aval.dtype), copy=False)
    assert result.shape == aval.shape, f"{result.shape} is not {aval.shape}"
    return result


def _equation(equation, inputs):
    name, params = equation.primitive.name, equation.params
    if name in _CALLS:
        called = next(params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params)
        return _run(getattr(called, "jaxpr", called), getattr(called, "consts", ()), inputs)
    if name in ENTRIES:
        return [ENTRIES[name](*inputs)]
    if name in LOOPS:
        return LOOPS[name](inputs, params, equation.outvars)
    if name in OTHERS:
        return OTHERS[name](inputs, params, equation.outvars)
    return _asked(equation, inputs)


def _asked(equation, inputs):
    """What JAX says."""
    primitive = equation.primitive
    inner = any(True for _ in jax.extend.core.jaxprs_in_params(equation.params))
    keys = any(not isinstance(value, np.ndarray) for value in inputs)
    dtypes = [atom.aval.dtype for atom in equation.invars]
    if inner or keys or primitive.name.startswith("random"):
        given = [value if not isinstance(value, np.ndarray) else value.astype(dtype)
                 for value, dtype in zip(inputs, dtypes, strict=True)]  # fmt: skip
        found = _bind(primitive, given, equation.params)
    else:
        params = {key: _wide(value) for key, value in equation.params.items()}
        with jax.enable_x64(True):
            found = _bind(primitive, inputs, params)
    return [_ideal(each) for each in found]


def _bind(primitive, inputs, params):
    bound = primitive.get_bind_params(params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)
    found = primitive.bind(*functions, *map(_array, inputs), **params)
    return found if primitive.multiple_results else [found]


def _array(value):
    return jnp.asarray(value) if isinstance(value, np.ndarray) else value


def _wide(value):
    is_dtype = isinstance(value, np.dtype) and jnp.issubdtype(value, jnp.inexact)
    return _dtype(value) if is_dtype else value


def _scan(inputs, params, out):
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    consts, state = inputs[:num_consts], inputs[num_consts : num_consts + num_carry]
    sequences, body = inputs[num_consts + num_carry :], params["jaxpr"]
    steps = range(params["length"])
    rows = {}
    for step in reversed(steps) if params["reverse"] else steps:
        found = _run(body.jaxpr, body.consts, [*consts, *state, *(s[step] for s in sequences)])
        state, rows[step] = found[:num_carry], found[num_carry:]
    return [*state, *(np.stack([rows[step][i] for step in steps])
                      for i in range(len(out) - num_carry))]  # fmt: skip


def _while(inputs, params, out):
    first, second = params["cond_nconsts"], params["body_nconsts"]
    cond, body, state = inputs[:first], inputs[first : first + second], inputs[first + second :]
    test, step = params["cond_jaxpr"], params["body_jaxpr"]
    while True:
        (goes_on,) = _run(test.jaxpr, test.consts, [*cond, *state])
        if not goes_on.any():
            return state
        stepped = _run(step.jaxpr, step.consts, [*body, *state])
        # A loop that is mapped goes on where it has not ended.
        state = [np.where(_as_rank(goes_on, new.ndim), new, old)
                 for new, old in zip(stepped, state, strict=True)]  # fmt: skip


def _as_rank(mask, rank):
    return mask.reshape((*mask.shape, *[1] * (rank - mask.ndim)))


def _cond(inputs, params, out):
    branches = params["branches"]
    chosen = branches[min(max(int(inputs[0]), 0), len(branches) - 1)]
    return _run(chosen.jaxpr, chosen.consts, inputs[1:])


LOOPS = {"scan": _scan, "while": _while, "cond": _cond}
