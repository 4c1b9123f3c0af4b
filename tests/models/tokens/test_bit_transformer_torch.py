"""The transformers of bits have the outputs and gradients of `torch.nn`'s layers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from jaxsens.models.tokens.bit_transformer import (
    POSITIONS,
    START,
    BitTransformer,
    ScratchpadTransformer,
)

torch = pytest.importorskip("torch")

LENGTH, WIDTH, HEADS = 7, 16, 2
BITS = np.random.default_rng(0).integers(2, size=(12, LENGTH))
WRITTEN = BITS.cumsum(axis=1) % 2
#: Arguments of PyTorch's layers.
SIZES = {
    "d_model": WIDTH,
    "nhead": HEADS,
    "dim_feedforward": WIDTH,
    "dropout": 0.0,
    "activation": "relu",
    "batch_first": True,
    "norm_first": False,
}


# --- The networks in PyTorch ----------------------------------------------------------------------


class Embedded(torch.nn.Module):
    """Embeddings of a bit and of its position, side by side."""

    def __init__(self, num_tokens):
        super().__init__()
        self.bits = torch.nn.Embedding(num_tokens, WIDTH // 2)
        self.positions = torch.nn.Embedding(LENGTH, WIDTH // 2)
        self.head = torch.nn.Linear(WIDTH, 1)

    def embed(self, tokens):
        positions = self.positions.weight.expand(len(tokens), -1, -1)
        return torch.cat([self.bits(tokens), positions], dim=-1)


class TorchBitTransformer(Embedded):
    def __init__(self):
        super().__init__(2)
        layer = torch.nn.TransformerEncoderLayer(**SIZES)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, bits):
        return self.head(self.encoder(self.embed(bits))[:, -1])[:, 0]


class TorchScratchpad(Embedded):
    def __init__(self):
        super().__init__(3)
        # It ends encoder and decoder with a norm each.
        self.transformer = torch.nn.Transformer(num_encoder_layers=2, num_decoder_layers=2, **SIZES)

    def forward(self, bits, written):
        before = torch.cat([torch.full_like(written[:, :1], START), written[:, :-1]], dim=1)
        later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        decoded = self.transformer(self.embed(bits), self.embed(before), tgt_mask=later)
        return self.head(decoded)[..., 0]


# --- Weights and gradients under Flax's names -----------------------------------------------------


def linear(weight, bias):
    return {"kernel": weight.T, "bias": bias}


def attention(of, prefix):
    weights, biases = (np.split(of[f"{prefix}.in_proj_{name}"], 3) for name in ("weight", "bias"))
    parts = zip(("query", "key", "value"), weights, biases, strict=True)
    projections = {name: linear(weight, bias) for name, weight, bias in parts}
    out = linear(of[f"{prefix}.out_proj.weight"], of[f"{prefix}.out_proj.bias"])
    return {**projections, "out": out}


def dense(of, name):
    return linear(of[f"{name}.weight"], of[f"{name}.bias"])


def norm(of, name):
    return {"scale": of[f"{name}.weight"], "bias": of[f"{name}.bias"]}


def layer(of, prefix, *, decoder=False):
    feed_forward = {"up": dense(of, f"{prefix}.linear1"), "down": dense(of, f"{prefix}.linear2")}
    norms = ["attention", *(["encoded"] if decoder else []), "feed_forward"]
    encoded = {"encoded": attention(of, f"{prefix}.multihead_attn")} if decoder else {}
    return {
        "attention": attention(of, f"{prefix}.self_attn"),
        **encoded,
        "feed_forward": feed_forward,
        **{f"norm_{name}": norm(of, f"{prefix}.norm{i}") for i, name in enumerate(norms, start=1)},
    }


def embedded(of):
    return {
        "bits": of["bits.weight"],
        POSITIONS: of["positions.weight"],
        "head": dense(of, "head"),
    }


def bit_params(of):
    layers = {f"layer_{i}": layer(of, f"encoder.layers.{i}") for i in range(2)}
    return {"params": embedded(of) | layers}


def scratchpad_params(of):
    layers = {}
    for i in range(2):
        layers[f"encoder_{i}"] = layer(of, f"transformer.encoder.layers.{i}")
        layers[f"decoder_{i}"] = layer(of, f"transformer.decoder.layers.{i}", decoder=True)
    halves = ("encoder", "decoder")
    norms = {f"{half}_norm": norm(of, f"transformer.{half}.norm") for half in halves}
    return {"params": embedded(of) | layers | norms}


def arrays_of(network, *, gradients):
    return {
        name: (parameter.grad if gradients else parameter.detach()).numpy()
        for name, parameter in network.named_parameters()
    }


# --- Tests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "make_network", "convert", "inputs"),
    [
        pytest.param(
            BitTransformer(LENGTH, WIDTH), TorchBitTransformer, bit_params, (BITS,), id="encoder"
        ),
        pytest.param(
            ScratchpadTransformer(LENGTH, WIDTH),
            TorchScratchpad,
            scratchpad_params,
            (BITS, WRITTEN),
            id="scratchpad",
        ),
    ],
)
def test_outputs_and_gradients(model, make_network, convert, inputs):
    torch.manual_seed(0)
    network = make_network()
    with torch.no_grad():
        # Zeros and ones would hide a forgotten bias or norm, and equal layers a wrong order.
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    targets = WRITTEN if len(inputs) == 2 else WRITTEN[:, -1]
    outputs = network(*map(torch.tensor, inputs))
    loss = ((outputs - torch.tensor(targets)) ** 2).mean()
    loss.backward()
    variables = convert(arrays_of(network, gradients=False))
    tokens = [jnp.asarray(each, jnp.int32) for each in inputs]
    shapes = jax.eval_shape(model.init, jax.random.key(0), *tokens)
    assert jax.tree.map(jnp.shape, variables) == jax.tree.map(jnp.shape, shapes)

    @jax.jit
    def differentiated(variables):
        def mean_square(variables):
            found = model.apply(variables, *tokens)
            return jnp.mean((found - jnp.asarray(targets, jnp.float32)) ** 2), found

        return jax.grad(mean_square, has_aux=True)(variables)

    gradients, found = differentiated(unflatten_dict(flatten_dict(variables)))
    expected = outputs.detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert expected.std() > 0.05
    theirs = flatten_dict(convert(arrays_of(network, gradients=True)), sep="/")
    for name, gradient in flatten_dict(gradients, sep="/").items():
        np.testing.assert_allclose(gradient, theirs[name], rtol=1e-5, atol=1e-6, err_msg=name)
        # A key's bias moves all logits of a query alike, which the softmax does not see.
        assert name.endswith("key/bias") or np.abs(theirs[name]).max() > 1e-5, name
