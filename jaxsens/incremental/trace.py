"""A function as a flat list of operations on numbered values.

Calls (jit, remat, custom derivatives) are replaced by what they call, and a choice by platform by
its branch. Calls of a marked function (`jaxsens.attention`) stay as they are: they have a rule of
their own. Attention whose projections are folded is taken apart (`folded_attention`).

Assumption: the function is pure. What it does besides giving its results happens once, when it is
traced.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Literal

from jaxsens.core.constants import with_unfoldable_constants
from jaxsens.core.jaxprs import bind, equations
from jaxsens.incremental.folded_attention import is_folded, separately

#: Parameters of an equation under which the function it calls may stand.
_CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_GPUS = {"cuda", "rocm"}
_CALLS = {"jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2",
          "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"}  # fmt: skip
#: How a callback may be mapped so that its function sees the axes that the model gives it.
_SAFE_CALLBACKS = {None, "sequential", "sequential_unrolled"}


class UnmappableError(Exception):
    """The model itself cannot be mapped over edits; anything else that is raised is our fault.

    Example:
      >>> import numpy as np
      >>> from jaxsens import Bits
      >>> from jaxsens.incremental import make_program
      >>> x = jax.ShapeDtypeStruct((3,), np.float32)
      >>> make_program(lambda params, x: np.sort(x), (), x, (), Bits(), "cpu", 1)
      Traceback (most recent call last):
      jaxsens.incremental.trace.UnmappableError: TracerArrayConversionError: ...
    """


@dataclass(frozen=True)
class Constant:
    """An operand that is known when the function is traced."""

    value: Any


#: The number of a value, or a constant.
Operand = int | Constant


@dataclass(frozen=True)
class Operation:
    """One primitive, or one call of a marked function.

    Attributes:
      name: the primitive's or the mark.
      apply: `apply(*inputs) -> outputs`, a list.
      params: the equation's parameters.
      inputs: its operands.
      outputs: the numbers of its results.
      prepared: the number of what its rule wants to know of the clean values, if anything.
      parts: the operations that it stands for, if it was made of several.
    """

    name: str
    apply: Callable[..., list[Any]]
    params: dict[str, Any]
    inputs: tuple[Operand, ...]
    outputs: tuple[int, ...]
    prepared: int
    parts: "tuple[Operation, ...]" = ()


#: From the name of a call, the shapes and dtypes of its operands and the number of its results.
IsMark = Callable[[str, Sequence[Any], int], bool]

#: From an operation and its clean inputs to what its rule wants to know of them.
Prepare = Callable[[Operation, Sequence[Any]], Any]


@dataclass(frozen=True)
class Trace:
    """A traced function.

    Attributes:
      operations: in order.
      inputs: the numbers of its arguments.
      outputs: its results.
      num_values: how many values there are.
      avals: shapes and dtypes of what operations give and of inputs, by their numbers.
      platform: whose branch was taken where the function has one for each; None where it has them
        all still.
    """

    operations: tuple[Operation, ...]
    inputs: tuple[int, ...]
    outputs: tuple[Operand, ...]
    num_values: int
    avals: dict[int, Any]
    platform: str | None

    def dependents(self, numbers: Iterable[int]) -> set[int]:
        """The numbers of the values that depend on some, these included."""
        found = set(numbers)
        for operation in self.operations:
            for part in operation.parts or (operation,):
                if found.intersection(each for each in part.inputs if isinstance(each, int)):
                    found.update(part.outputs)
        return found

    @property
    def constants(self) -> set[int]:
        """The numbers of the large constants, which stand behind barriers."""
        return {
            number
            for operation in self.operations
            if operation.name == "optimization_barrier"
            and all(isinstance(operand, Constant) for operand in operation.inputs)
            for number in operation.outputs
        }

    def values(self, arguments: Sequence[Any], prepare: Prepare) -> list[Any]:
        """Every value of the function, by its number, and what `prepare` adds for an operation."""
        values = dict(zip(self.inputs, arguments, strict=True))
        for index, operation in enumerate(self.operations):
            with operation_scope(index):
                evaluate(operation.parts or (operation,), values)
                inputs = [value_of(values, operand) for operand in operation.inputs]
                values[operation.prepared] = prepare(operation, inputs)
        return [values.get(number) for number in range(self.num_values)]


def evaluate(operations: Sequence[Operation], values: MutableMapping[int, Any]) -> None:
    """Adds the results of operations to the values, which must hold their operands."""
    for operation in operations:
        results = apply_operation(
            operation, [value_of(values, operand) for operand in operation.inputs]
        )
        values.update(zip(operation.outputs, results, strict=True))


def apply_operation(operation: Operation, inputs: Sequence[Any]) -> list[Any]:
    """The results of the model's own operation on whole operands.

    Raises:
      UnmappableError: whatever the operation raises, as the model's fault.
    """
    try:
        return operation.apply(*inputs)
    except Exception as error:
        raise UnmappableError(f"{operation.name}: {error}") from error


def operation_scope(index: int) -> Any:
    """Names what is traced in it after the operation of that index, for `explain` to add up."""
    return jax.named_scope(f"operation_{index}")


def value_of(values: Mapping[int, Any] | Sequence[Any], operand: Operand) -> Any:
    """An operand's value."""
    return operand.value if isinstance(operand, Constant) else values[operand]


def trace(function: Callable, *arguments: Any, platform: str | None, is_mark: IsMark) -> Trace:
    """Traces a function of flat arguments.

    Args:
      function: of arrays, to one array.
      arguments: arrays or their shapes.
      platform: whose branch is taken where the function has one for each.
      is_mark: whether a call is an operation by itself.
    """
    return flatten(equations_of(function, *arguments), platform=platform, is_mark=is_mark)


def equations_of(function: Callable, *arguments: Any) -> ClosedJaxpr:
    """The same, as JAX writes it.

    Raises:
      UnmappableError: it cannot be traced, or not be mapped.
    """
    try:
        closed = jax.make_jaxpr(function)(*arguments)
    except Exception as error:
        raise UnmappableError(f"{type(error).__name__}: {error}") from error
    closed = with_unfoldable_constants(closed)
    for equation in equations(closed.jaxpr):
        if equation.params.get("vmap_method") not in _SAFE_CALLBACKS:
            raise UnmappableError(
                f"{equation.primitive.name} would see other axes than a batch has; "
                "vmap_method='sequential' lets it be mapped"
            )
    return closed


def flatten(
    closed: ClosedJaxpr, *, platform: str | None, is_mark: IsMark, kept: Collection[str] = ()
) -> Trace:
    """A traced function as a flat list of operations.

    Args:
      closed: the function.
      platform: whose branch is taken where the function has one for each; None leaves them all.
      is_mark: whether a call is an operation by itself.
      kept: primitives whose calls are operations by themselves too.
    """
    flat = _Flattener(platform, is_mark, kept)
    inputs = tuple(flat.number(atom.aval) for atom in closed.jaxpr.invars)
    outputs = flat.add(closed.jaxpr, [Constant(c) for c in closed.consts], inputs)
    return Trace(tuple(flat.operations), inputs, tuple(outputs), flat.count, flat.avals, platform)


def called_function(equation: Any, is_mark: IsMark) -> tuple[Any, Sequence[Any]] | None:
    """The function that an equation does nothing but call, and what that closes over.

    Args:
      equation: of a traced function.
      is_mark: whether a call is an operation by itself, and so no such equation.
    """
    params = equation.params
    avals = [atom.aval for atom in equation.invars]
    if equation.primitive.name not in _CALLS or is_mark(
        str(params.get("name")), avals, len(equation.outvars)
    ):
        return None
    called = next(params[key] for key in _CALLED if key in params)
    return getattr(called, "jaxpr", called), getattr(called, "consts", ())


class _Flattener:
    def __init__(self, platform: str | None, is_mark: IsMark, kept: Collection[str]):
        self.platform, self.is_mark, self.kept = platform, is_mark, kept
        self.operations: list[Operation] = []
        self.avals: dict[int, Any] = {}
        self.count = 0

    def number(self, aval: Any = None) -> int:
        if aval is not None:
            self.avals[self.count] = aval
        self.count += 1
        return self.count - 1

    def add(self, jaxpr: Any, consts: Sequence[Operand], inputs: Sequence[Operand]) -> list:
        """Adds the equations of a function; returns what its results are."""
        known: dict[Any, Operand] = dict(zip(jaxpr.constvars, consts, strict=True))
        known.update(zip(jaxpr.invars, inputs, strict=True))

        def operand(atom: Any) -> Operand:
            return Constant(atom.val) if isinstance(atom, Literal) else known[atom]

        for equation in jaxpr.eqns:
            operands = [operand(atom) for atom in equation.invars]
            results = self._equation(equation, operands)
            known.update(zip(equation.outvars, results, strict=True))
        return [operand(atom) for atom in jaxpr.outvars]

    def _equation(self, equation: Any, operands: list[Operand]) -> Sequence[Operand]:
        name, params = equation.primitive.name, equation.params
        if name in _CALLS and name not in self.kept:
            called = called_function(equation, self.is_mark)
            called_as = str(params.get("name"))
            if called is None:
                return self._keep(equation, operands, called_as)
            jaxpr, consts = called
            avals = [atom.aval for atom in equation.invars]
            if is_folded(called_as, avals, len(equation.outvars)):
                separate = jax.make_jaxpr(separately(called_as))(*avals)
                jaxpr, consts = separate.jaxpr, separate.consts
            return self.add(jaxpr, [Constant(c) for c in consts], operands)
        if name == "cond" and params.get("branches_platforms") and self.platform is not None:
            branch = params["branches"][_branch(params["branches_platforms"], self.platform)]
            return self.add(branch.jaxpr, [Constant(c) for c in branch.consts], operands[1:])
        return self._keep(equation, operands, name)

    def _keep(self, equation: Any, operands: list[Operand], name: str) -> Sequence[Operand]:
        outputs = tuple(self.number(atom.aval) for atom in equation.outvars)
        self.operations.append(
            Operation(
                name,
                functools.partial(bind, equation),
                dict(equation.params),
                tuple(operands),
                outputs,
                self.number(),
            )
        )
        return outputs


def _branch(platforms: Sequence[Sequence[str] | None], platform: str) -> int:
    for index, names in enumerate(platforms):
        if names is None or platform in names or (platform == "gpu" and _GPUS & set(names)):
            return index
    raise ValueError(f"the function has no branch for {platform}: {platforms}")
