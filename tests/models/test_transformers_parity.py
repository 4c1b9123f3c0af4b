"""RoBERTa, GPT-2 and the LSTM have the logits of Hugging Face's and PyTorch's, weights copied."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens.models import GPT2, LSTM, RoBERTa
from jaxsens.text.tokenization import PAD_ID

torch = pytest.importorskip("torch")

TOKENS = np.random.default_rng(0).integers(4, 40, (3, 11)).astype(np.int32)
TOKENS[np.arange(11) >= np.array([11, 6, 8])[:, None]] = PAD_ID


def scaled(module):
    """Weights of order one in place of the tiny first ones."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return module.eval()


def array(tensor):
    return jnp.asarray(tensor.detach().numpy())


def dense(module):
    found = {"kernel": array(module.weight).T}
    return found if module.bias is None else found | {"bias": array(module.bias)}


def norm(module):
    return {"scale": array(module.weight), "bias": array(module.bias)}


def embedding(module):
    return {"embedding": array(module.weight)}


def ours(model, params):
    expected = jax.eval_shape(model.init, jax.random.key(0), TOKENS)["params"]
    assert jax.tree.structure(expected) == jax.tree.structure(params)
    return np.asarray(model.apply({"params": params}, jnp.asarray(TOKENS)))


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


@pytest.mark.parametrize("attention", ["softmax", "relu"])
def test_roberta(transformers, attention, monkeypatch):
    config = transformers.RobertaConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=30, type_vocab_size=1, pad_token_id=PAD_ID,
        layer_norm_eps=1e-5, num_labels=2, attn_implementation="eager",
    )  # fmt: skip
    theirs = scaled(transformers.RobertaForSequenceClassification(config))
    if attention == "relu":
        monkeypatch.setattr(
            torch.nn.functional, "softmax", lambda logits, *a, **k: torch.relu(logits)
        )
    with torch.no_grad():
        expected = theirs(
            torch.tensor(TOKENS).long(), attention_mask=torch.tensor(TOKENS != PAD_ID).long()
        ).logits.numpy()

    def block(layer):
        attend = layer.attention
        return {
            "MultiHeadAttention_0": {
                "query": dense(attend.self.query),
                "key": dense(attend.self.key),
                "value": dense(attend.self.value),
                "out": dense(attend.output.dense),
            },
            "LayerNorm_0": norm(attend.output.LayerNorm),
            "Dense_0": dense(layer.intermediate.dense),
            "Dense_1": dense(layer.output.dense),
            "LayerNorm_1": norm(layer.output.LayerNorm),
        }

    embeddings = theirs.roberta.embeddings
    params = {
        "words": embedding(embeddings.word_embeddings),
        "positions": embedding(embeddings.position_embeddings),
        "types": embedding(embeddings.token_type_embeddings),
        "norm": norm(embeddings.LayerNorm),
        "pooler": dense(theirs.classifier.dense),
        "head": dense(theirs.classifier.out_proj),
        **{f"blocks_{i}": block(b) for i, b in enumerate(theirs.roberta.encoder.layer)},
    }
    model = RoBERTa(
        40, depth=3, heads=4, width=32, hidden=48, max_positions=30, attention=attention
    )
    np.testing.assert_allclose(ours(model, params), expected, rtol=1e-4, atol=1e-4)


def test_gpt2(transformers):
    config = transformers.GPT2Config(
        vocab_size=40, n_positions=30, n_embd=32, n_layer=3, n_head=4, num_labels=2,
        pad_token_id=PAD_ID, attn_implementation="eager",
    )  # fmt: skip
    theirs = scaled(transformers.GPT2ForSequenceClassification(config))
    with torch.no_grad():
        expected = theirs(
            torch.tensor(TOKENS).long(), attention_mask=torch.tensor(TOKENS != PAD_ID).long()
        ).logits.numpy()

    def transposed(module):
        return {"kernel": array(module.weight), "bias": array(module.bias)}

    def block(layer):
        merged = transposed(layer.attn.c_attn)
        split = {k: jnp.split(v, 3, axis=-1) for k, v in merged.items()}
        names = ("query", "key", "value")
        return {
            "LayerNorm_0": norm(layer.ln_1),
            "MultiHeadAttention_0": {
                **{name: {k: v[i] for k, v in split.items()} for i, name in enumerate(names)},
                "out": transposed(layer.attn.c_proj),
            },
            "LayerNorm_1": norm(layer.ln_2),
            "Dense_0": transposed(layer.mlp.c_fc),
            "Dense_1": transposed(layer.mlp.c_proj),
        }

    params = {
        "words": embedding(theirs.transformer.wte),
        "positions": embedding(theirs.transformer.wpe),
        "norm": norm(theirs.transformer.ln_f),
        "head": dense(theirs.score),
        **{f"blocks_{i}": block(b) for i, b in enumerate(theirs.transformer.h)},
    }
    model = GPT2(40, depth=3, heads=4, width=32, max_positions=30, normalised=False)
    np.testing.assert_allclose(ours(model, params), expected, rtol=1e-4, atol=1e-4)


def test_lstm():
    words = scaled(torch.nn.Embedding(40, 32, padding_idx=PAD_ID))
    layer_norm = scaled(torch.nn.LayerNorm(32))
    recurrent = scaled(torch.nn.LSTM(32, 32, 3, batch_first=True, dropout=0.1))
    head = scaled(torch.nn.Linear(32, 2))
    lengths = torch.tensor((TOKENS != PAD_ID).sum(axis=1))
    with torch.no_grad():
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            layer_norm(words(torch.tensor(TOKENS).long())), lengths, True, enforce_sorted=False
        )
        _, (hidden, _) = recurrent(packed)
        expected = head(hidden[-1]).numpy()
    params = {"words": embedding(words), "norm": norm(layer_norm), "head": dense(head)}
    for i in range(3):
        params[f"layers_{i}"] = {
            "input": {
                "kernel": array(getattr(recurrent, f"weight_ih_l{i}")).T,
                "bias": array(getattr(recurrent, f"bias_ih_l{i}")),
            },
            "recurrent": array(getattr(recurrent, f"weight_hh_l{i}")).T,
            "recurrent_bias": array(getattr(recurrent, f"bias_hh_l{i}")),
        }
    np.testing.assert_allclose(
        ours(LSTM(40, depth=3, width=32), params), expected, rtol=1e-4, atol=1e-4
    )
