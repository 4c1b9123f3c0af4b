"""BERT's embedding layer from a small file of the same layout, made here."""

import numpy as np
import pytest

from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError
from jaxsens.text.bert import load_bert

numpy_files = pytest.importorskip("safetensors.numpy")

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "good", "bad", "film", "##s", "."]


def write(folder, tokens=TOKENS, scale="LayerNorm.gamma", offset="LayerNorm.beta", **changes):
    rng = np.random.default_rng(0)
    tensors = {
        "word_embeddings.weight": rng.normal(size=(len(TOKENS), 8)),
        "position_embeddings.weight": rng.normal(size=(6, 8)),
        "token_type_embeddings.weight": rng.normal(size=(2, 8)),
        scale: rng.uniform(0.5, 1.5, 8),
        offset: rng.normal(size=8),
    } | changes
    named = {f"bert.embeddings.{k}": v.astype(np.float32) for k, v in tensors.items()}
    # What the rest of the model would be.
    named["bert.pooler.dense.weight"] = np.zeros((8, 8), np.float32)
    folder.mkdir(exist_ok=True)
    numpy_files.save_file(named, folder / "model.safetensors")
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    return tensors


@pytest.mark.parametrize(
    "names", [("LayerNorm.gamma", "LayerNorm.beta"), ("LayerNorm.weight", "LayerNorm.bias")]
)
def test_embeddings_are_their_definition(tmp_path, names):
    tensors = write(tmp_path, scale=names[0], offset=names[1])
    bert = load_bert(tmp_path)
    (ids,) = bert.encode(["Good films."])
    assert ids.tolist() == [2, 5, 7, 8, 9, 3]
    e = (
        tensors["word_embeddings.weight"][ids]
        + tensors["position_embeddings.weight"]
        + tensors["token_type_embeddings.weight"][0]
    )
    e = (e - e.mean(1, keepdims=True)) / e.std(1, keepdims=True)
    expected = tensors[names[0]] * e + tensors[names[1]]
    np.testing.assert_allclose(bert(ids[None])[0], expected, atol=1e-4)
    np.testing.assert_array_equal(bert(ids[None, :3])[0], bert(ids[None])[0, :3])


def test_long_texts_are_cut_and_unknown_words_have_an_id(tmp_path):
    write(tmp_path)
    first, second = load_bert(tmp_path).encode(["a " * 20, "zebra"])
    assert first.tolist() == [2, 4, 4, 4, 4, 3]
    assert second.tolist() == [2, 1, 3]


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DatasetNotFoundError, match=r"got no model\.safetensors"):
        load_bert(tmp_path)
    write(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(DatasetNotFoundError, match=r"got no vocab\.txt"):
        load_bert(tmp_path)


def test_damaged_files_are_refused(tmp_path):
    write(tmp_path, tokens=TOKENS[:-1])
    with pytest.raises(CorruptDataError, match="expected 10 different tokens"):
        load_bert(tmp_path)
    write(tmp_path, tokens=["x", *TOKENS[:2], *TOKENS[3:]])
    with pytest.raises(CorruptDataError, match=r"without \[CLS\]"):
        load_bert(tmp_path)
    write(tmp_path, **{"LayerNorm.gamma": np.ones(5)})
    with pytest.raises(CorruptDataError, match=r"expected scale of width 8, got shape \(5,\)"):
        load_bert(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not tensors at all")
    with pytest.raises(CorruptDataError, match="expected safetensors"):
        load_bert(tmp_path)
    numpy_files.save_file({"other": np.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(CorruptDataError, match=r"word_embeddings\.weight, got none among 1"):
        load_bert(tmp_path)
