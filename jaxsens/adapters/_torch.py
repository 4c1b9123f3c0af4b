"""PyTorch modules, Hugging Face's included, as JAX functions.

The module is exported once for inputs of a shape, as a graph of PyTorch's operations, and the graph
is evaluated with JAX's (`jaxsens.adapters.torch_graph`). So what JAX compiles, maps and
differentiates has PyTorch's operations in it, and PyTorch itself takes no part in it.

Assumption: the module is the same whenever it is exported. Its weights and buffers are arguments; a
number of Python that it holds is taken as it is at that moment.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxsens.adapters.outputs import Choice, check_weights, checked_choice
from jaxsens.adapters.torch_graph import Inputs, array_of, evaluated, exported, first_names
from jaxsens.core.adapted import Adapted, framework_of
from jaxsens.core.scalars import one_line
from jaxsens.core.user_code import first_line


def torch(module: Any, *, output: Choice = None) -> Adapted:
    """A PyTorch module as a JAX function, with its weights and buffers as parameters.

    Images are (n, C, H, W), as PyTorch has them: measure with `Patches(p, channels="first")`. What
    is given as `context=` is the module's second argument or, if it is a dict, goes by its names:
    `context={"attention_mask": mask}`.

    Floating-point inputs are cast to the dtype of the weights. 64-bit numbers become 32-bit ones,
    unless JAX is told to keep them (`jax_enable_x64`).

    Args:
      module: a `torch.nn.Module` in eval mode.
      output: which of several outputs is the logits: the name of a field, or a number in a tuple.
        By default the only one, or the one called "logits".

    Returns:
      `apply_fn(params, x)` and params, a dict of arrays under PyTorch's names. Of the same module
      `apply_fn` is the same, so that nothing is compiled again after more training.

    Raises:
      ValueError: this is no module, or it is in training mode, or has weights that are nan.

    When it is called, the function raises a TypeError with one line if the module branches on
    values, has a number of examples written into it, or uses an operation that
    `jaxsens.adapters.operations` does not have.

    Example:
      Weights (3, 2) and a bias, from PyTorch:

          model = torch.nn.Linear(2, 3).eval()
          apply_fn, params = jaxsens.adapters.torch(model)
          apply_fn(params, jnp.ones((1, 2)))          # model(torch.ones(1, 2))
    """
    output = checked_choice("torch", output)
    if framework_of(module) != "torch":
        raise ValueError(f"adapters.torch needs a torch.nn.Module; got {one_line(module)}")
    _refuse_training(module)
    tensors = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    names = dict.fromkeys(first_names(module).values())
    params = {name: jnp.asarray(array_of(tensors[name])) for name in names}
    check_weights("torch", params)
    return Adapted(_TorchApply(module, output), params)


def embeddings(model: Any, *, output: Choice = None) -> Adapted:
    """A Hugging Face text model as a function of its input embeddings, where noise can be added.

    The embeddings are what the model's table gives for ids, before positions are added and layer
    norm is applied: `model.get_input_embeddings()(ids)`.

    Args:
      model: a PyTorch model of the package transformers that takes `inputs_embeds`, in eval mode.
      output: as for `torch`.

    Returns:
      `apply_fn(params, embeddings, mask)` and params: embeddings (n, T, d), and the mask (n, T) of
      the real tokens, which `sensitivity` takes as `context=`. Without a mask all tokens count.

    Raises:
      ValueError: the model takes no embeddings; else as for `torch`.

    Example:
      With ids and mask (n, T) of a tokenizer:

          model = BertForSequenceClassification.from_pretrained(folder)
          x = model.get_input_embeddings()(ids).detach()
          noise = Perturbation(Tokens(), Gaussian(sigma=1.0))
          adapted = jaxsens.adapters.embeddings(model)
          sensitivity(adapted, x, noise, key=key, context=mask, mask=mask)
    """
    _, params = torch(model, output=output)
    if "inputs_embeds" not in inspect.signature(model.forward).parameters:
        raise ValueError(
            "adapters.embeddings needs a model of transformers that takes inputs_embeds; got "
            f"{type(model).__name__}: give a module that starts after the embeddings to "
            "adapters.torch"
        )
    return Adapted(_TorchApply(model, output, ("inputs_embeds", "attention_mask")), params)


@dataclass(frozen=True)
class _TorchApply:
    """The module as a function; equal for the same module and the same output.

    Attributes:
      module: the module.
      output: which of its outputs is the logits.
      names: the names of the module's arguments that get x and context; () for its first ones.
    """

    module: Any
    output: Choice
    names: tuple[str, ...] = ()

    def __call__(self, params: Mapping[str, Any], x: Any, *context: Any) -> Any:
        _refuse_training(self.module)
        names: tuple[str, ...] = self.names[: 1 + len(context)]
        if not names and context and isinstance(context[0], Mapping):
            names, context = ("", *context[0]), tuple(context[0].values())
        arrays = [_in_dtype_of(params, x), *map(jnp.asarray, context)]
        shapes = tuple((array.shape[1:], _torch_dtype(array)) for array in arrays)
        inputs = Inputs(shapes, names or ("",) * len(arrays))
        try:
            graph = exported(self.module, self.output, inputs)
        except Exception as error:
            advice = _channels_advice(error, self.module, np.shape(x))
            if advice is None:
                raise
            raise TypeError(advice) from error
        return evaluated(graph, params, arrays)


def _refuse_training(module: Any) -> None:
    training = [name or type(module).__name__ for name, m in module.named_modules() if m.training]
    if training:
        raise ValueError(
            f"{type(module).__name__} is in training mode, in which dropout draws numbers and "
            f"BatchNorm mixes the examples of a batch: call module.eval() first; got "
            f"{len(training)} parts in training mode, the first {training[0]!r}"
        )


def _in_dtype_of(params: Mapping[str, Any], x: Any) -> Any:
    """X in the dtype of the weights, if both are floating-point numbers; PyTorch mixes none."""
    found = {p.dtype for p in params.values() if jnp.issubdtype(p.dtype, jnp.floating)}
    x = jnp.asarray(x)
    if len(found) == 1 and jnp.issubdtype(x.dtype, jnp.floating):
        return x.astype(found.pop())
    return x


def _torch_dtype(array: Any) -> str:
    """The name of PyTorch's dtype; ids have 64 bits there."""
    return "int64" if jnp.issubdtype(array.dtype, jnp.integer) else str(array.dtype)


def _channels_advice(error: Exception, module: Any, shape: tuple[int, ...]) -> str | None:
    """One line about images whose channels seem to be last."""
    if len(shape) != 4 or shape[3] >= min(shape[1:3]):
        return None
    return (
        f"{type(module).__name__} fails for x of shape {shape}: PyTorch's images are (n, C, H, W); "
        'give x.transpose(0, 3, 1, 2), and Patches(p, channels="first") as the grid '
        f"({type(error).__name__}: {first_line(error)})"
    )
