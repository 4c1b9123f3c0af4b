"""Cheaper lowering of what JAX traces, by private names of it: nothing is lowered differently."""

import dataclasses
import importlib
import threading
from importlib.metadata import version
from typing import Any, NamedTuple

#: Lowerings that share one context of MLIR, which keeps the constants of all of them.
_LOWERINGS_PER_CONTEXT = 1_000


#: Operations whose lowering depends on nothing but their shapes and parameters.
_SHARED = frozenset(
    """
    abs add and argmax argmin broadcast_in_dim clamp concatenate convert_element_type div
    dot_general dynamic_slice dynamic_update_slice eq erf erf_inv exp gather ge gt integer_pow
    iota is_finite le log logistic lt max min mul ne neg not or pad pow random_bits
    random_fold_in random_split reduce_and reduce_max reduce_min reduce_or reduce_sum rem
    reshape rev rsqrt scatter scatter-add select_n shift_left shift_right_logical sign slice
    sort sqrt square squeeze sub tanh threefry2x32 transpose xor
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


class _Lowered(NamedTuple):
    """What an operation became: a function to be inlined, and those that it calls, by name."""

    entry: Any
    called: dict[str, Any]

    @classmethod
    def of(cls, entry, symbols):
        called, pending = {}, [entry.func.operation]
        while pending:
            for call in _calls(pending.pop()):
                name = call.attributes["callee"].value
                if name not in called:
                    called[name] = symbols[name].operation.clone(ip=False)
                    pending.append(called[name])
        return cls(entry, called)

    def within(self, ctx):
        """The same for another module, which gets its own copies of what is called."""
        if not self.called:
            return self.entry
        function = self.entry.func.operation.clone(ip=False)
        copies = {name: each.clone(ip=ctx.ip) for name, each in self.called.items()}
        names = {name: ctx.symbol_table.insert(copy).value for name, copy in copies.items()}
        for each in (function, *copies.values()):
            for call in _calls(each):
                new = names[call.attributes["callee"].value]
                call.attributes["callee"] = mlir.ir.FlatSymbolRefAttr.get(new)
        return dataclasses.replace(self.entry, func=function)


def _calls(operation):
    """The calls in the body of a function."""
    found = []

    def look(inner):
        if inner.name == "func.call":
            found.append(inner)
        return mlir.ir.WalkResult.ADVANCE

    operation.walk(look)
    return found


def _shared(contexts, lower):
    """Lowers operations once for all functions of a context, in a third less time altogether."""

    def lowered(ctx, equation, key, *arguments, **params):
        if equation.primitive.name not in _SHARED or ctx.context is not contexts.context:
            return lower(ctx, equation, key, *arguments, **params)
        if key in contexts.operations:
            ctx.lowering_cache[key] = contexts.operations[key].within(ctx)
        else:
            made = lower(ctx, equation, key, *arguments, **params)
            if made.inline:
                contexts.operations[key] = _Lowered.of(made, ctx.symbol_table)
        return ctx.lowering_cache[key]

    return lowered


def share():
    """From now on functions share contexts, and contexts' functions what their operations become.

    Only where the private names are known to be what they are here.
    """
    global mlir
    if version("jax").startswith("0.10."):
        mlir = importlib.import_module("jax._src.interpreters.mlir")
        mlir.make_ir_context = _Contexts(mlir.make_ir_context)
        mlir._cached_lowering_miss = _shared(mlir.make_ir_context, mlir._cached_lowering_miss)
