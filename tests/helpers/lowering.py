"""Cheaper lowering of what JAX traces, by private names of it: nothing is lowered differently."""

import importlib
import threading
from importlib.metadata import version

#: Lowerings that share one context of MLIR, which keeps the constants of all of them.
_LOWERINGS_PER_CONTEXT = 200


#: Operations whose lowering depends on nothing but their shapes and parameters.
_SHARED = frozenset(
    """
    abs add and argmax argmin broadcast_in_dim clamp concatenate convert_element_type div
    dot_general dynamic_slice dynamic_update_slice eq erf exp gather ge gt integer_pow iota
    is_finite le log logistic lt max min mul ne neg not or pad pow reduce_and reduce_max
    reduce_min reduce_or reduce_sum rem reshape rev rsqrt scatter scatter-add select_n shift_left
    shift_right_logical sign slice sort sqrt square squeeze sub tanh transpose xor
    """.split()  # noqa: SIM905
)


class _Contexts(threading.local):
    """Contexts of MLIR: making one takes 2 of the 3 ms of lowering a small function."""

    def __init__(self, make):
        self.make, self.num_lowerings, self.context = make, 0, None

    def __call__(self):
        if mlir.ir.Context.current is not None:
            return self.make()  # one lowering within another
        if self.num_lowerings % _LOWERINGS_PER_CONTEXT == 0:
            self.operations, self.context = {}, self.make()
        self.num_lowerings += 1
        return self.context


def _shared(contexts, lower):
    """Lowers operations once for all functions of a context: a fourteenth of the suite's time."""

    def lowered(ctx, equation, key, *arguments, **params):
        if equation.primitive.name not in _SHARED or ctx.context is not contexts.context:
            return lower(ctx, equation, key, *arguments, **params)
        if key not in contexts.operations:
            made = lower(ctx, equation, key, *arguments, **params)
            if not made.inline or _calls(made.func.operation):
                return made  # it names functions that this module alone has
            contexts.operations[key] = made
        ctx.lowering_cache[key] = contexts.operations[key]
        return contexts.operations[key]

    return lowered


def _calls(operation):
    """Whether there is a call in the body of a function."""
    names = []
    operation.walk(lambda inner: names.append(inner.name) or mlir.ir.WalkResult.ADVANCE)
    return "func.call" in names


def share():
    """From now on functions share contexts, and contexts' functions what their operations become.

    Only where the private names are known to be what they are here.
    """
    global mlir
    if version("jax").startswith("0.10."):
        mlir = importlib.import_module("jax._src.interpreters.mlir")
        mlir.make_ir_context = _Contexts(mlir.make_ir_context)
        mlir._cached_lowering_miss = _shared(mlir.make_ir_context, mlir._cached_lowering_miss)
