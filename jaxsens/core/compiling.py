"""How hard XLA tries: programs of a measurement are compiled more often than they run for long."""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax

#: LLVM takes a tenth to a third less time with it, and the programs of all ten models of
#: `benchmarks.models` ran as fast, with the same flips: what takes long in them are products of
#: libraries, and loops that XLA has made vectors of by itself.
_QUICKLY = {"xla_backend_optimization_level": 1}
_FLAG = "xla_backend_optimization_level"


class QuicklyCompiled:
    """`jax.jit` of a function, on a CPU compiled with less effort.

    Nothing changes on other platforms, nor if `XLA_FLAGS` says how much effort to take.

    Args:
      function: to compile.
      static_argnums: as for `jax.jit`.

    >>> program = QuicklyCompiled(lambda power, x: x**power, static_argnums=(0,))
    >>> float(program(3, 2.0))
    8.0
    """

    def __init__(self, function: Callable, static_argnums: Sequence[int]):
        functools.update_wrapper(self, function)
        jitted = functools.partial(jax.jit, function, static_argnums=static_argnums)
        self._thorough, self._quick = jitted(), jitted(compiler_options=_QUICKLY)

    def __call__(self, *arguments: Any) -> Any:
        """The function's result."""
        return self._jitted(*arguments)

    def __getattr__(self, name: str) -> Any:
        """What a function of `jax.jit` has beside its result: `eval_shape`, `lower` and others."""
        return getattr(self._jitted, name)

    @property
    def _jitted(self) -> Any:
        is_quick = jax.default_backend() == "cpu" and _FLAG not in os.environ.get("XLA_FLAGS", "")
        return self._quick if is_quick else self._thorough


def quickly_compiled(*static_argnums: int) -> Callable[[Callable], QuicklyCompiled]:
    """A decorator that makes a `QuicklyCompiled`."""
    return functools.partial(QuicklyCompiled, static_argnums=static_argnums)
