"""Models of Haiku, Keras, Equinox, Flax, penzai and scikit-learn; see `foreign_models`."""

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.foreign_case import (
    NUM,
    TOKENS,
    WIDTH,
    Cases,
    Foreign,
    adapted,
    case,
    images,
    lively,
    texts,
)

#: By the name of the row.
CASES: Cases = {}
_case = functools.partial(case, CASES)


# Haiku


def _haiku(forward: Callable, x: Any, factor: float = 1.0, **arguments: Any) -> Any:
    """A function of Haiku's layers, with state if it has any."""
    import haiku as hk
    import jax

    network = hk.transform_with_state(forward)
    # Running statistics are made by a pass in training mode.
    training = dict.fromkeys(arguments, True)
    params, state = jax.jit(lambda key: network.init(key, x, **training))(jax.random.key(0))
    return adapted("haiku", network, lively(params, factor), state, **arguments)


@_case("haiku MLP", "haiku")
def haiku_mlp() -> Foreign:
    """Two hidden layers."""
    import haiku as hk

    x = images(28, 28, 1)
    model = _haiku(lambda x: hk.nets.MLP([300, 100, 10])(x.reshape(len(x), -1)), x)
    return Foreign(model, x, 4, 3.0, "last")


@_case("haiku GRU", "haiku", "GRU")
@_case("haiku LSTM", "haiku", "LSTM")
def haiku_rnn(core: str) -> Foreign:
    """The last state is read."""
    import haiku as hk

    def forward(x: Any) -> Any:
        cell = getattr(hk, core)(WIDTH)
        states, _ = hk.dynamic_unroll(cell, x, cell.initial_state(len(x)), time_major=False)
        return hk.Linear(4)(states[:, -1])

    x = texts()
    return Foreign(_haiku(forward, x, 2.0), x, 1, 3.0)


@_case("haiku ResNet-18", "haiku", "ResNet18", 32, 4)
@_case("haiku MobileNetV1", "haiku", "MobileNetV1", 64, 8)
def haiku_network(name: str, side: int, window: int) -> Foreign:
    """A network of `hk.nets`, in eval mode."""
    import haiku as hk

    def forward(x: Any, is_training: bool) -> Any:
        return getattr(hk.nets, name)(num_classes=10)(x, is_training)

    x = images(side, side, 3)
    return Foreign(_haiku(forward, x, is_training=False), x, window, 3.0, "last")


# scikit-learn, penzai: their arrays in a function


@_case("scikit-learn MLP", "sklearn")
def sklearn_mlp() -> Foreign:
    """`MLPClassifier`, fitted to handwritten digits for a moment."""
    import warnings

    import jax
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    digits = load_digits()
    x = (digits.data / 16).astype(np.float32)
    model = MLPClassifier(max_iter=5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # five passes are no convergence
        model.fit(x, digits.target)
    layers = [
        (np.float32(w), np.float32(b)) for w, b in zip(model.coefs_, model.intercepts_, strict=True)
    ]

    def apply_fn(params: Any, x: Any) -> Any:
        x = x.reshape(len(x), -1)
        for w, b in params[:-1]:
            x = jax.nn.relu(x @ w + b[None])
        return x @ params[-1][0] + params[-1][1][None]

    return Foreign((apply_fn, layers), x[:NUM].reshape(NUM, 8, 8, 1), 2, 1.0, "last")


@_case("penzai MLP", "penzai")
def penzai_mlp() -> Foreign:
    """Its weights frozen into values, so that they are parameters like any other."""
    import jax
    from penzai import pz
    from penzai.models.simple_mlp import MLP

    model = MLP.from_config(jax.random.key(0), [784, 300, 100, 10])
    layers, values = pz.unbind_params(model, freeze=True)

    def apply_fn(params: Any, x: Any) -> Any:
        named = pz.nx.wrap(x.reshape(len(x), -1)).tag("n", "features")
        return pz.bind_variables(layers, params)(named).unwrap("n", "features")

    return Foreign((apply_fn, values), images(28, 28, 1), 4, 3.0, "last")


# Flax nnx, linen


@_case("nnx CNN", "flax")
def nnx_cnn() -> Foreign:
    """Two convolutions and two dense layers, as in Flax's tutorial on MNIST."""
    from flax import nnx

    class CNN(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.conv1 = nnx.Conv(1, 32, (3, 3), rngs=rngs)
            self.conv2 = nnx.Conv(32, 64, (3, 3), rngs=rngs)
            self.linear1 = nnx.Linear(3136, 256, rngs=rngs)
            self.linear2 = nnx.Linear(256, 10, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            for conv in (self.conv1, self.conv2):
                x = nnx.avg_pool(nnx.relu(conv(x)), (2, 2), (2, 2))
            return self.linear2(nnx.relu(self.linear1(x.reshape(len(x), -1))))

    return Foreign(adapted("nnx", CNN(nnx.Rngs(0))), images(28, 28, 1), 4, 5.0, "last")


@_case("nnx ViT, 2 blocks", "flax", 2)
def nnx_vit(depth: int) -> Foreign:
    """Blocks as in Flax's tutorial on vision transformers; the class token is read."""
    import jax.numpy as jnp
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.norm1, self.norm2 = (nnx.LayerNorm(WIDTH, rngs=rngs) for _ in range(2))
            self.attention = nnx.MultiHeadAttention(4, WIDTH, decode=False, rngs=rngs)
            self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
            self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = x + self.attention(self.norm1(x))
            return x + self.down(nnx.gelu(self.up(self.norm2(x))))

    class ViT(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.patches = nnx.Conv(3, WIDTH, (4, 4), (4, 4), rngs=rngs)
            self.first = nnx.Param(nnx.initializers.normal()(rngs.params(), (1, 1, WIDTH)))
            self.places = nnx.Param(nnx.initializers.normal()(rngs.params(), (1, 65, WIDTH)))
            self.blocks = nnx.List([Block(rngs) for _ in range(depth)])
            self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
            self.head = nnx.Linear(WIDTH, 10, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = self.patches(x).reshape(len(x), -1, WIDTH)
            first = jnp.broadcast_to(self.first[...], (len(x), 1, WIDTH))
            x = jnp.concatenate([first, x], axis=1) + self.places[...]
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x[:, 0]))

    return Foreign(adapted("nnx", ViT(nnx.Rngs(0))), images(32, 32, 3), 4, 10.0, "last")


@_case("linen transformer, 4 blocks, nn.scan", "flax", True)
@_case("linen transformer, 4 blocks", "flax", False)
def linen_transformer(scanned: bool) -> Foreign:
    """Norm first; the first token is read."""
    import flax.linen as nn
    import jax

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: Any, _: Any) -> Any:
            x = x + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(x))
            y = nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x)))
            return x + nn.Dense(WIDTH)(y), None

    class Transformer(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            if scanned:
                options: dict[str, Any] = {"variable_axes": {"params": 0}, "length": 4}
                x, _ = nn.scan(Block, split_rngs={"params": True}, **options)()(x, None)
            else:
                for _ in range(4):
                    x, _ = Block()(x, None)
            return nn.Dense(4)(nn.LayerNorm()(x)[:, 0])

    model, x = Transformer(), texts()
    params = jax.jit(model.init)(jax.random.key(0), x)
    return Foreign((model.apply, params), x, 1, 5.0)


# Equinox


@_case("Equinox CNN", "equinox")
def equinox_cnn() -> Foreign:
    """As in Equinox's tutorial on MNIST: channels first, one example at a time."""
    import equinox as eqx
    import jax

    keys = jax.random.split(jax.random.key(0), 3)
    layers: Any = [
        eqx.nn.Conv2d(1, 8, 4, key=keys[0]), eqx.nn.MaxPool2d(2, 2), eqx.nn.Lambda(jax.nn.relu),
        eqx.nn.Lambda(lambda x: x.ravel()), eqx.nn.Linear(1152, 256, key=keys[1]),
        eqx.nn.Lambda(jax.nn.relu), eqx.nn.Linear(256, 10, key=keys[2]),
    ]  # fmt: skip
    model = adapted("equinox", eqx.nn.Sequential(layers))
    return Foreign(model, images(1, 28, 28), 4, 5.0, "first")


@_case("Equinox LSTM", "equinox", "LSTMCell")
@_case("Equinox GRU", "equinox", "GRUCell")
def equinox_rnn(cell: str) -> Foreign:
    """As in Equinox's tutorial on recurrent networks; the last state is read."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    class Reader(eqx.Module):
        cell: Any
        head: Any

        def __call__(self, x: Any) -> Any:
            start = jnp.zeros(WIDTH)
            state = (start, start) if cell == "LSTMCell" else start
            state, _ = jax.lax.scan(lambda state, token: (self.cell(token, state), None), state, x)
            return self.head(state[0] if cell == "LSTMCell" else state)

    first, second = jax.random.split(jax.random.key(0))
    core = getattr(eqx.nn, cell)(WIDTH, WIDTH, key=first)
    model = adapted("equinox", Reader(core, eqx.nn.Linear(WIDTH, 4, key=second)))
    return Foreign(model, texts(), 1, 5.0)


# Keras


def _keras() -> Any:
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    keras.utils.set_random_seed(0)
    return keras


@_case("Keras LSTM", "keras", "LSTM")
@_case("Keras GRU", "keras", "GRU")
def keras_rnn(layer: str) -> Foreign:
    """The last state is read."""
    keras = _keras()
    core = getattr(keras.layers, layer)(WIDTH)
    layers = [keras.layers.Input((TOKENS, WIDTH)), core, keras.layers.Dense(4)]
    return Foreign(adapted("keras", keras.Sequential(layers)), texts(), 1, 5.0)


@_case("Keras Transformer, 2 blocks", "keras", 2)
@_case("Keras Transformer, 1 block", "keras", 1)
def keras_transformer(depth: int) -> Foreign:
    """Blocks as in Keras's example of text classification: norm last, the mean is read."""
    keras = _keras()
    layers = keras.layers
    given = layers.Input((TOKENS, WIDTH))
    x = given
    for _ in range(depth):
        y = layers.Dropout(0.1)(layers.MultiHeadAttention(2, WIDTH)(x, x))
        x = layers.LayerNormalization(epsilon=1e-6)(x + y)
        y = layers.Dense(WIDTH)(layers.Dense(WIDTH, activation="relu")(x))
        x = layers.LayerNormalization(epsilon=1e-6)(x + layers.Dropout(0.1)(y))
    x = layers.Dense(20, activation="relu")(layers.GlobalAveragePooling1D()(x))
    model = adapted("keras", keras.Model(given, layers.Dense(4)(x)))
    return Foreign(model, texts(), 1, 10.0)


@_case("Keras ResNet50", "keras", "ResNet50")
def keras_application(name: str) -> Foreign:
    """A network of `keras.applications`."""
    keras = _keras()
    make = getattr(keras.applications, name)
    x = images(32, 32, 3)
    options = {"weights": None, "classes": 10, "classifier_activation": None}
    model = adapted("keras", make(input_shape=x.shape[1:], **options))
    return Foreign(model, x, 4, 30.0, "last")
