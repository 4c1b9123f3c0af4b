"""A PyTorch module as a graph of operations, and the graph in JAX.

`torch.export` runs the module's Python code once, with tensors that have shapes and no values, and
writes down what it does. The number of examples is left open. The graph is then evaluated with
JAX's arrays, operation by operation, by the table of `jaxsens.adapters.operations`; what is not in
the table PyTorch decomposes first.

Assumption: the module does the same for inputs of the same shape, whatever their values. Python
numbers that it holds are those of the moment of the export.
"""

import functools
import importlib
import inspect
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxsens.adapters.operations import OPERATIONS
from jaxsens.adapters.operations.dtypes import as_dtype
from jaxsens.adapters.outputs import Choice, chosen_output
from jaxsens.adapters.promotion import default_promotion
from jaxsens.core.user_code import first_line

#: Examples of the inputs that a module is exported with: no size that modules compare theirs with.
_BATCH = 7
#: Operations on sizes, which are numbers of Python here, and assertions, which the export has made.
_CHECKS = ("_assert", "sym_constrain", "_guards")
#: Operations whose result is a number of Python, or has a shape that depends on values.
_VALUES = {"aten.item", "aten._local_scalar_dense", "aten.nonzero", "aten.masked_select"}
#: Who prints graphs and tracebacks before PyTorch raises; the error has it all in one line.
_LOGGERS = ("torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor")


@dataclass(frozen=True)
class Inputs:
    """What a module is called with.

    Attributes:
      shapes: of one example of each input, and their dtypes.
      names: the names of the module's arguments that get them; "" for its first ones.
    """

    shapes: tuple[tuple[tuple[int, ...], str], ...]
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Graph:
    """The operations of a module.

    Attributes:
      nodes: in the order of evaluation.
      sources: by placeholder, the name of the parameter or buffer, the number of the input, or an
        array that the module made.
    """

    nodes: tuple[Any, ...]
    sources: Mapping[str, Any]

    def __call__(self, params: Mapping[str, Any], inputs: Sequence[Any]) -> Any:
        """The module's output for arrays in place of its tensors."""
        values: dict[Any, Any] = {}

        def value_of(argument: Any) -> Any:
            if isinstance(argument, list | tuple):
                return [value_of(each) for each in argument]
            return values[argument] if type(argument).__name__ == "Node" else argument

        for node in self.nodes:
            if node.op == "placeholder":
                source = self.sources[node.name]
                found = params[source] if isinstance(source, str) else source
                values[node] = inputs[found] if isinstance(found, int) else found
            elif node.op == "output":
                (out,) = value_of(node.args[0][-1:])
                return out
            else:
                function = _function_of(node.target)
                named = {name: value_of(each) for name, each in node.kwargs.items()}
                found = function(*map(value_of, node.args), **named)
                values[node] = _in_dtype(found, node.meta.get("val"))
        raise AssertionError("a graph ends with its output")


def _in_dtype(found: Any, expected: Any) -> Any:
    """The result in the dtype that PyTorch gives it: both promote, but not always alike."""
    if hasattr(found, "dtype") and hasattr(expected, "dtype"):
        return found.astype(as_dtype(expected.dtype))
    return found


def _name_of(target: Any) -> str:
    """Such as "aten.add", for any overload; of a function of Python its own name."""
    packet = getattr(target, "overloadpacket", None)
    return str(target.__name__) if packet is None else str(packet).replace("::", ".")


def _function_of(target: Any) -> Callable[..., Any]:
    name = _name_of(target)
    if name in OPERATIONS:
        return OPERATIONS[name]
    if name == "aten.sym_size":
        return lambda x, axis: x.shape[axis]
    if any(check in name for check in _CHECKS):
        return lambda *_, **__: None
    return target


def _is_known(target: Any) -> bool:
    name = _name_of(target)
    if name in OPERATIONS or name == "aten.sym_size" or any(check in name for check in _CHECKS):
        return True
    # Functions of Python work on sizes; operations on whole graphs have a namespace.
    return not hasattr(target, "namespace")


def exported(module: Any, output: Choice, inputs: Inputs) -> Graph:
    """The graph of a module for inputs of these shapes; kept, since an export takes seconds.

    Args:
      module: a `torch.nn.Module` in eval mode.
      output: which of its outputs is the logits.
      inputs: what it is called with.

    Raises:
      TypeError: it branches on values, has a number of examples written into it, or uses
        operations that have no translation.
    """
    graph = _graph_or_error(module, output, inputs)
    if isinstance(graph, Graph):
        return graph
    raise graph


@functools.lru_cache(maxsize=64)
def _graph_or_error(module: Any, output: Choice, inputs: Inputs) -> "Graph | Exception":
    """Both are kept: a call that fails is made again with other numbers of examples."""
    torch = importlib.import_module("torch")
    kind = type(module).__name__
    called = _called_class()(module, output, inputs.names).train(False)
    examples = tuple(
        torch.zeros((_BATCH, *shape), dtype=getattr(torch, dtype)) for shape, dtype in inputs.shapes
    )
    sizes = (tuple({0: torch.export.Dim.DYNAMIC} for _ in examples),)
    try:
        with _exporting(torch):
            program = torch.export.export(called, (examples,), dynamic_shapes=sizes, strict=False)
            program = program.run_decompositions(_decompositions())
    except Exception as error:
        return _explained(error, kind)
    called_for = [node.target for node in program.graph.nodes if node.op == "call_function"]
    missing = sorted({_name_of(target) for target in called_for if not _is_known(target)})
    if _VALUES.intersection(missing):
        return _asks_for_values(kind)
    if missing:
        return TypeError(
            f"{kind} uses {', '.join(missing)}, which has no translation to JAX: add it to "
            "jaxsens.adapters.operations, or give the module without it"
        )
    return Graph(tuple(program.graph.nodes), _sources(program, first_names(module)))


def first_names(module: Any) -> dict[str, str]:
    """By each name of a parameter or buffer the first one: tied weights have several."""
    named = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    first: dict[int, str] = {}
    return {name: first.setdefault(id(tensor), name) for name, tensor in named}


def _sources(program: Any, first: Mapping[str, str]) -> dict[str, Any]:
    """Where the values of the placeholders come from."""
    found: dict[str, Any] = {}
    num_inputs = 0
    for spec in program.graph_signature.input_specs:
        name = spec.arg.name
        if spec.kind.name == "USER_INPUT":
            found[name], num_inputs = num_inputs, num_inputs + 1
        elif spec.kind.name in ("PARAMETER", "BUFFER"):
            found[name] = first[str(spec.target).removeprefix("module.")]
        else:
            found[name] = array_of(program.constants[spec.target])
    return found


def array_of(tensor: Any) -> np.ndarray:
    """A copy of a tensor, in the dtype that JAX gives it; NumPy knows no bfloat16 of PyTorch's."""
    tensor = tensor.detach().cpu()
    dtype = as_dtype(tensor.dtype)
    tensor = tensor.float() if "bfloat16" in str(tensor.dtype) else tensor
    return np.array(tensor.numpy()).astype(dtype)


@contextmanager
def _exporting(torch: Any) -> Iterator[None]:
    """No gradients, no fused operation of nn.TransformerEncoder, and nothing printed on the way."""
    mha, loggers = torch.backends.mha, [logging.getLogger(name) for name in _LOGGERS]
    fast, levels = mha.get_fastpath_enabled(), [logger.level for logger in loggers]
    mha.set_fastpath_enabled(False)
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    unseen = io.StringIO()
    try:
        with (
            warnings.catch_warnings(), torch.no_grad(), redirect_stdout(unseen),
            redirect_stderr(unseen),
            # It chooses a path by numbers, and would fix the number of examples.
            torch.backends.opt_einsum.flags(enabled=False),
        ):  # fmt: skip
            warnings.simplefilter("ignore")
            yield
    finally:
        mha.set_fastpath_enabled(fast)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@functools.cache
def _decompositions() -> Any:
    """PyTorch's own, but for the operations of the table."""
    torch = importlib.import_module("torch")
    table = torch.export.default_decompositions()
    for name in OPERATIONS:
        packet = getattr(torch.ops.aten, name.removeprefix("aten."), None)
        for overload in packet.overloads() if packet is not None else ():
            table.pop(getattr(packet, overload), None)
    return table


@functools.cache
def _called_class() -> Any:
    """A module that calls another with inputs by name, and picks one of its outputs."""
    nn = importlib.import_module("torch").nn

    class Called(nn.Module):
        def __init__(self, module: Any, output: Choice, names: tuple[str, ...]):
            super().__init__()
            self.module, self.output, self.names = module, output, names
            takes = inspect.signature(module.forward).parameters
            # Keys and values for a next token, which there is not.
            self.options = {"use_cache": False} if "use_cache" in takes else {}

        def forward(self, inputs: Sequence[Any]) -> Any:
            pairs = list(zip(self.names, inputs, strict=True))
            named = self.options | {name: value for name, value in pairs if name}
            outputs = self.module(*(value for name, value in pairs if not name), **named)
            return chosen_output(outputs, self.output)

    return Called


def _explained(error: Exception, kind: str) -> Exception:
    """The error as one line that says what to do, where that is known."""
    text = f"{type(error).__name__} {error}"
    if any(word in text for word in ("DataDependent", "data-dependent", "data dependent")):
        return _asks_for_values(kind)
    is_written = any(word in text for word in ("specialized", "is invalid for input of size"))
    # PyTorch calls the number of examples s21, say: in 32*s21 it has become part of another axis.
    if is_written or re.search(r"\d\*s\d+\b", text):
        return TypeError(
            f"{kind} has a number of examples written into it, and must take any: use x.shape[0] "
            f"or -1 where a view has a number, and x.shape[0] for len(x) ({first_line(error)})"
        )
    return error


def _asks_for_values(kind: str) -> TypeError:
    return TypeError(
        f"{kind} asks for the values of a tensor (an if, .item(), a shape that depends on values), "
        "which JAX traces without values: write it with torch.where"
    )


def evaluated(graph: Graph, params: Mapping[str, Any], inputs: Sequence[Any]) -> Any:
    """The graph's output by PyTorch's rules: ranks and dtypes are promoted."""
    with default_promotion():
        return graph(params, [jnp.asarray(each) for each in inputs])
