"""Recurrent layers of PyTorch as scans over time, layer after layer and in both directions."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

#: (carry, what the input gives, weights and bias of the state) → carry; its first is the output.
Cell = Callable[[tuple[Any, ...], Any, Any, Any], tuple[Any, ...]]


def _lstm_cell(carry: tuple[Any, ...], given: Any, weight: Any, bias: Any) -> tuple[Any, ...]:
    h, c = carry
    i, f, g, o = jnp.split(given + h @ weight.T + bias, 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _gru_cell(carry: tuple[Any, ...], given: Any, weight: Any, bias: Any) -> tuple[Any, ...]:
    (h,) = carry
    r_x, z_x, n_x = jnp.split(given, 3, axis=-1)
    r_h, z_h, n_h = jnp.split(h @ weight.T + bias, 3, axis=-1)
    z = jax.nn.sigmoid(z_x + z_h)
    n = jnp.tanh(n_x + jax.nn.sigmoid(r_x + r_h) * n_h)
    return ((1 - z) * n + z * h,)


def _plain_cell(activation: Callable[[Any], Any]) -> Cell:
    def cell(carry: tuple[Any, ...], given: Any, weight: Any, bias: Any) -> tuple[Any, ...]:
        (h,) = carry
        return (activation(given + h @ weight.T + bias),)

    return cell


def _scanned(
    cell: Cell, x: Any, carry: tuple[Any, ...], weights: Sequence[Any], reverse: bool
) -> tuple[tuple[Any, ...], Any]:
    """One layer in one direction over (T, n, d); the last carry and the outputs (T, n, h)."""
    w_x, w_h, *biases = weights
    b_x, b_h = biases or (jnp.zeros(len(w_x), x.dtype), jnp.zeros(len(w_h), x.dtype))

    def step(carry: tuple[Any, ...], given: Any) -> tuple[tuple[Any, ...], Any]:
        carry = cell(carry, given, w_h, b_h)
        return carry, carry[0]

    return lax.scan(step, carry, x @ w_x.T + b_x, reverse=reverse)


def _layers(
    cell: Cell, x: Any, states: Sequence[Any], weights: Sequence[Any], has_biases: bool,
    num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Any, ...]:  # fmt: skip
    if train and dropout:
        raise ValueError(f"a recurrent layer has dropout of {dropout} on: call module.eval()")
    x = x.swapaxes(0, 1) if batch_first else x
    per_layer, directions = 4 if has_biases else 2, 2 if bidirectional else 1
    if len(weights) != per_layer * directions * num_layers:
        raise ValueError("recurrent layers with proj_size have no translation to JAX")
    last: list[tuple[Any, ...]] = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            number = layer * directions + direction
            own = weights[number * per_layer : (number + 1) * per_layer]
            carry = tuple(state[number] for state in states)
            carry, out = _scanned(cell, x, carry, own, reverse=direction == 1)
            outputs.append(out)
            last.append(carry)
        x = outputs[0] if directions == 1 else jnp.concatenate(outputs, axis=-1)
    ends = (jnp.stack(each) for each in zip(*last, strict=True))
    return (x.swapaxes(0, 1) if batch_first else x, *ends)


def _lstm(x: Any, states: Sequence[Any], weights: Sequence[Any], *options: Any) -> Any:
    return _layers(_lstm_cell, x, states, weights, *options)


def _of_one_state(cell: Cell) -> Callable[..., Any]:
    def layers(x: Any, state: Any, weights: Sequence[Any], *options: Any) -> Any:
        return _layers(cell, x, [state], weights, *options)

    return layers


OPERATIONS: dict[str, Callable[..., Any]] = {
    "gru": _of_one_state(_gru_cell),
    "lstm": _lstm,
    "rnn_relu": _of_one_state(_plain_cell(jax.nn.relu)),
    "rnn_tanh": _of_one_state(_plain_cell(jnp.tanh)),
}
