"""neural-tangents on today's JAX: the one place that knows how to import it.

neural-tangents 0.6.5 looks up names that JAX has since moved or removed, and imports a part that
needs TensorFlow. Its infinite-width layers (`stax`) do not use them. So the names are lent to JAX
while it is imported and taken back after it.

Assumption: only `neural_tangents.stax` is used. Its empirical kernels and its `predict` module do
use the lent names later and would fail; `jaxsens.spectrum.empirical` is the replacement here.
"""

import contextlib
import functools
import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import jax
import jax.core
import jax.extend.core
import jax.interpreters.ad

INSTALL = "pip install --no-deps neural-tangents==0.6.5"


class NeuralTangentsMissingError(ImportError):
    """neural-tangents is not installed; the message says how to install it."""


@functools.cache
def stax() -> types.ModuleType:
    """The module `neural_tangents.stax`; JAX is left as it was.

    Raises:
      NeuralTangentsMissingError: it is not installed.

    >>> hasattr(stax(), "GlobalSelfAttention")
    True
    """
    try:
        with _lent_names():
            return importlib.import_module("neural_tangents.stax")
    except ModuleNotFoundError as error:
        raise NeuralTangentsMissingError(
            f"this kernel needs neural-tangents ({error}); install it with: {INSTALL} "
            "(without --no-deps it would bring TensorFlow, which is not used)"
        ) from error


@contextlib.contextmanager
def _lent_names() -> Iterator[None]:
    moved = {
        name: getattr(jax.extend.core, name)
        for name in ("Jaxpr", "JaxprEqn", "Literal", "Var", "Primitive")
    }
    core = {**moved, "DShapedArray": type("DShapedArray", (), {}), "get_aval": jax.typeof}
    ad = {
        "zeros_like_p": jax.extend.core.Primitive("zeros_like"),
        "reducing_transposes": {},
        "source_info_util": types.SimpleNamespace(),
        "config": jax.config,
    }
    util = types.ModuleType("jax.util")
    util.__dict__.update(safe_map=_safe_map, safe_zip=_safe_zip)
    # The only part that imports TensorFlow.
    experimental = types.ModuleType("neural_tangents.experimental")
    with contextlib.ExitStack() as lent:
        lent.enter_context(_names(jax.core, core))
        lent.enter_context(_names(jax.interpreters.ad, ad))
        lent.enter_context(_modules({"jax.util": util, experimental.__name__: experimental}))
        yield


@contextlib.contextmanager
def _names(module: types.ModuleType, names: dict[str, Any]) -> Iterator[None]:
    """Gives the module those of the names that it lacks."""
    # Not hasattr: JAX answers for some removed names with a deprecation warning.
    missing = [name for name in names if name not in vars(module)]
    for name in missing:
        setattr(module, name, names[name])
    try:
        yield
    finally:
        for name in missing:
            delattr(module, name)


@contextlib.contextmanager
def _modules(modules: dict[str, types.ModuleType]) -> Iterator[None]:
    missing = [name for name in modules if name not in sys.modules]
    sys.modules.update({name: modules[name] for name in missing})
    try:
        yield
    finally:
        for name in missing:
            sys.modules.pop(name, None)


def _safe_map(function: Any, *lists: Any) -> list:
    return [function(*arguments) for arguments in zip(*lists, strict=True)]


def _safe_zip(*lists: Any) -> list:
    return list(zip(*lists, strict=True))
