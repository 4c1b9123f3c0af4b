"""What goes wrong inside a user's own model, edit or metric, in one line.

JAX calls these functions with tracers: placeholders that have a shape and a dtype but no values.
NumPy and Python's `if` need values, so they fail there, with a page about JAX's inside. The page
stays as the error's cause; the line says what to write instead.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax

_NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
)
#: What to do about errors of Flax and Haiku, by their names.
_ADVICE = {
    # A module counts, as random streams do, while JAX traces it.
    "TraceContextError": "; apply_fn holds a Flax module that changes: give "
    "jaxsens.adapters.nnx(model)",
    **dict.fromkeys(
        ("ModifyScopeVariableError", "InvalidRngError", "MissingRNGError"),
        "; the model is in training mode, in which BatchNorm and dropout act: call it in eval "
        "mode, such as lambda params, x: model.apply(params, x, train=False)",
    ),
}


@contextlib.contextmanager
def user_call(function: str, *, advice: str = "", **arguments: Any) -> Iterator[None]:
    """Wraps a call of a user's function, whose error becomes one line that says how it was called.

    Args:
      function: its name, as the user knows it.
      advice: what to try if the function takes another number of arguments.
      **arguments: what it is called with, of which shapes and dtypes are shown.

    Raises:
      TypeError: the function raised one, or needs values where JAX traces it.
      ValueError: the function raised anything else.
    """
    try:
        yield
    except Exception as error:
        shown = ", ".join(f"{name}={described(value)}" for name, value in arguments.items())
        raise _one_line(error, f"{function}({shown}) fails", advice) from error


def described(tree: Any) -> str:
    """The shapes and dtypes of the first four arrays of a pytree.

    >>> import jax.numpy as jnp
    >>> described({"w": jnp.ones((2, 3)), "b": jnp.ones(3)})
    '{b: float32[3], w: float32[2,3]}'
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    if len(leaves) == 1 and not leaves[0][0]:
        return _leaf(leaves[0][1])
    shown = [f"{_name(path)}: {_leaf(leaf)}" for path, leaf in leaves[:4]]
    return "{" + ", ".join([*shown, *["…"] * (len(leaves) > 4)]) + "}"


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _leaf(leaf: Any) -> str:
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if shape is None:
        return type(leaf).__name__
    return f"{dtype}[{','.join(map(str, shape))}]"


def needs_values(error: BaseException) -> bool:
    """Whether this is JAX's complaint that values are asked for while it traces."""
    return isinstance(error, _NEEDS_VALUES)


def _one_line(error: Exception, call: str, advice: str) -> Exception:
    if needs_values(error):
        return TypeError(
            f"{call}: it needs values where JAX traces it with placeholders that have none "
            f"({type(error).__name__}); use jax.numpy in place of numpy, and jnp.where or "
            "jax.lax.cond in place of if"
        )
    said = f"{call}: {type(error).__name__}: {first_line(error)}"
    said += _ADVICE.get(type(error).__name__, "")
    if not isinstance(error, TypeError):
        return ValueError(said)
    # Python's own words where the number of arguments is wrong.
    return TypeError(f"{said}; {advice}" if advice and " argument" in said else said)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, at most 300 characters."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
    return text if len(text) <= 300 else text[:297] + "..."
