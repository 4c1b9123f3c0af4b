"""Tokenizers: RoBERTa's special ids, lossless text, longest-first truncation, one file."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from jaxsens.data import CorruptDataError, DatasetNotFoundError
from jaxsens.data.text import load_text
from jaxsens.data.text.texts import Texts
from jaxsens.text import special_ids, tokenization

DATA = os.environ.get("JAXSENS_DATA", "")
CORPUS = ["the cat sat on the mat", "a dog sat on a log", 'she said "no" at 12.50 €'] * 3


@pytest.fixture(scope="module")
def tokenizer():
    return tokenization.train_bpe(CORPUS, 280)


def pairs(*texts):
    first, second = zip(*texts, strict=True)
    return Texts(first, second, np.zeros(len(texts), np.int32))


def singles(*texts):
    return Texts(texts, None, np.zeros(len(texts), np.int32))


def test_the_special_tokens_are_those_of_roberta(tokenizer):
    specials = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    assert [tokenizer.token_to_id(t) for t in specials] == [0, 1, 2, 3, 279]
    assert tokenizer.get_vocab_size() == 280
    ids = (tokenization.CLS_ID, tokenization.PAD_ID, tokenization.SEP_ID, tokenization.UNK_ID)
    assert ids == (0, 1, 2, 3)


def test_a_small_corpus_gives_a_smaller_vocabulary_with_mask_still_last():
    tokenizer = tokenization.train_bpe(["ab"], 5000)
    assert tokenizer.get_vocab_size() == 262
    assert tokenizer.token_to_id("<mask>") == 261


def test_training_is_deterministic(tokenizer):
    assert tokenization.train_bpe(iter(CORPUS), 280).to_str() == tokenizer.to_str()


@pytest.mark.parametrize(
    "text", ["the cat", "naïve 数学 🙂", "tab\tand\u2028more", "</s><mask> <s>"]
)
def test_no_text_is_lost_or_taken_for_a_special_token(tokenizer, text):
    [ids] = tokenization.encode(tokenizer, singles(text))
    assert ids.dtype == np.int32
    assert (ids[0], ids[-1]) == (0, 2)
    inner = ids[1:-1]
    assert ((inner > 3) & (inner != 279)).all()
    assert tokenizer.decode(inner.tolist()) == text


def test_pairs_and_singles_have_robertas_layout(tokenizer):
    a, b = "the cat sat", "a dog"
    ids_a, ids_b = (ids[1:-1] for ids in tokenization.encode(tokenizer, singles(a, b)))
    [pair] = tokenization.encode(tokenizer, pairs((a, b)))
    np.testing.assert_array_equal(pair, [0, *ids_a, 2, 2, *ids_b, 2])


@pytest.mark.parametrize(
    ("size_a", "size_b", "max_length", "kept"),
    [
        (4, 4, 12, (4, 4)),
        (10, 2, 12, (6, 2)),
        (2, 10, 12, (2, 6)),
        (10, 10, 12, (4, 4)),
        (10, 6, 12, (4, 4)),
        (9, 9, 13, None),  # nine places for two texts: 4 and 5, either way round
    ],
)
def test_truncation_takes_from_the_longest_first(size_a, size_b, max_length, kept):
    tokenizer = tokenization.train_bpe([], 261)
    [ids] = tokenization.encode(tokenizer, pairs(("a" * size_a, "b" * size_b)), max_length)
    a, b = tokenizer.token_to_id("a"), tokenizer.token_to_id("b")
    got = (int((ids == a).sum()), int((ids == b).sum()))
    assert got == kept if kept else set(got) == {4, 5}
    np.testing.assert_array_equal(ids, [0, *[a] * got[0], 2, 2, *[b] * got[1], 2])


def test_a_single_text_keeps_its_start_and_its_end_token():
    tokenizer = tokenization.train_bpe([], 261)
    [ids] = tokenization.encode(tokenizer, singles("abcdef"), max_length=5)
    assert tokenizer.decode(ids.tolist(), skip_special_tokens=False) == "<s>abc</s>"


def test_encoding_leaves_the_tokenizer_as_it_was(tokenizer):
    before = tokenizer.to_str()
    tokenization.encode(tokenizer, singles("the cat sat on the mat"), max_length=4)
    assert tokenizer.to_str() == before


@pytest.mark.parametrize(("texts", "smallest"), [(singles("a"), 3), (pairs(("a", "b")), 6)])
def test_a_length_without_room_is_named(tokenizer, texts, smallest):
    message = f"at least {smallest} .*, got {smallest - 1}"
    with pytest.raises(ValueError, match=message):
        tokenization.encode(tokenizer, texts, max_length=smallest - 1)
    assert len(tokenization.encode(tokenizer, texts, max_length=smallest)[0]) == smallest


def test_a_vocabulary_without_room_for_all_bytes_is_named():
    with pytest.raises(ValueError, match=r"at least 261 \(256 bytes, 5 special tokens\), got 260"):
        tokenization.train_bpe(CORPUS, 260)


def test_one_file_holds_the_whole_tokenizer(tokenizer, tmp_path):
    path = tmp_path / "run" / "tokenizer.json"
    tokenization.save_tokenizer(tokenizer, path)
    again = tokenization.load_tokenizer(path)
    assert [entry.name for entry in path.parent.iterdir()] == ["tokenizer.json"]
    texts = pairs(("the </s> cat", "naïve"), ("x" * 200, "y"))
    for old, new in zip(
        tokenization.encode(tokenizer, texts), tokenization.encode(again, texts), strict=True
    ):
        np.testing.assert_array_equal(old, new)


def test_files_that_are_no_such_tokenizer_are_named(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        tokenization.load_tokenizer(path)
    path.write_text(tokenizer.to_str()[:-10])
    with pytest.raises(CorruptDataError, match=r"tokenizer\.json: expected a tokenizer"):
        tokenization.load_tokenizer(path)
    path.write_bytes(b"\xff")
    with pytest.raises(CorruptDataError, match=r"tokenizer\.json: expected a tokenizer"):
        tokenization.load_tokenizer(path)
    path.write_text(tokenizer.to_str().replace("<mask>", "<musk>"))
    with pytest.raises(CorruptDataError, match=r"special tokens .*'<mask>': 279.*got .*None"):
        tokenization.load_tokenizer(path)


def write_gpt2(folder, names=("encoder.json", "vocab.bpe"), merges=("Ġ a", "b c")):
    """Writes GPT-2's file formats with 256 bytes and a few merges."""
    alphabet = sorted(tokenization.tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, "Ġa", "bc", "<|endoftext|>"]
    folder.mkdir(exist_ok=True)
    vocabulary = {token: i for i, token in enumerate(tokens)}
    (folder / names[0]).write_text(json.dumps(vocabulary))
    (folder / names[1]).write_text("\n".join(["#version: 0.2", *merges, ""]))
    return vocabulary


@pytest.mark.parametrize("names", [("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")])
def test_gpt2_files_are_renumbered_after_the_special_tokens(tmp_path, names):
    vocabulary = write_gpt2(tmp_path, names)
    tokenizer = tokenization.load_vocabulary_files(tmp_path)
    assert tokenizer.get_vocab_size() == len(vocabulary) - 1 + 5
    assert tokenizer.token_to_id("<|endoftext|>") is None
    assert tokenizer.token_to_id("<mask>") == tokenizer.get_vocab_size() - 1
    [ids] = tokenization.encode(tokenizer, singles("x abc"))
    tokens = ["x", "Ġa", "bc"]
    np.testing.assert_array_equal(ids, [0, *(vocabulary[token] + 4 for token in tokens), 2])


def write_roberta(folder, **changes):
    """Writes RoBERTa's file formats with its special tokens among 256 bytes and two merges."""
    vocabulary = write_gpt2(folder, ("vocab.json", "merges.txt"))
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *reversed(vocabulary), "madeupword0000", "<mask>"]
    vocabulary = {token: i for i, token in enumerate(tokens)} | changes
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    return vocabulary


def test_roberta_s_own_files_keep_their_ids(tmp_path):
    vocabulary = write_roberta(tmp_path)
    tokenizer = tokenization.load_vocabulary_files(tmp_path)
    assert tokenizer.get_vocab() == vocabulary
    [ids] = tokenization.encode(tokenizer, singles("x abc <mask>"))
    tokens = ["x", "Ġa", "bc", "Ġ", *"<mask>"]  # as text: a literal is not a special token
    np.testing.assert_array_equal(ids, [0, *(vocabulary[token] for token in tokens), 2])
    path = tmp_path / "tokenizer.json"
    tokenization.save_tokenizer(tokenizer, path)
    assert tokenization.load_tokenizer(path).get_vocab() == vocabulary


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"<pad>": 2, "</s>": 1}, r"RoBERTa's with .*, got .*'<pad>': 2, '</s>': 1"),
        ({"x": 0}, r"every id from 0 to 264 once, got others; its 265 tokens have 264 ids"),
    ],
)
def test_roberta_s_files_with_other_ids_are_named(tmp_path, changes, message):
    write_roberta(tmp_path, **changes)
    with pytest.raises(CorruptDataError, match=rf"vocab\.json: expected .*{message}"):
        tokenization.load_vocabulary_files(tmp_path)


def test_missing_gpt2_files_are_named(tmp_path):
    write_gpt2(tmp_path)
    (tmp_path / "vocab.bpe").rename(tmp_path / "merges.txt")
    message = "encoder.json and vocab.bpe or vocab.json and merges.txt, got neither"
    with pytest.raises(DatasetNotFoundError, match=message):
        tokenization.load_vocabulary_files(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("encoder.json", b"{", r"encoder\.json: expected JSON"),
        ("encoder.json", b"[1]", r"encoder\.json: expected a JSON object from tokens to ids"),
        ("encoder.json", b'{"<s>": 0}', r"RoBERTa's with .*'<pad>': 1.*, got .*'<pad>': None"),
        ("vocab.bpe", b"#version: 0.2\na b\nabc\n", r"vocab\.bpe, line 3: .* got 'abc'"),
        ("vocab.bpe", b"q qq\n", r"vocab\.bpe: expected merges of tokens in encoder\.json"),
        ("vocab.bpe", b"\xff\xfe", r"vocab\.bpe: expected UTF-8"),
    ],
)
def test_damaged_gpt2_files_are_named(tmp_path, name, content, message):
    write_gpt2(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorruptDataError, match=message):
        tokenization.load_vocabulary_files(tmp_path)


@pytest.mark.parametrize("write", [write_gpt2, write_roberta])
@pytest.mark.parametrize(
    ("token", "number", "message"),
    [
        ("x", -1, "'x' has the id -1$"),
        ("x", 10**9, "'x' has the id 1000000000$"),
        ("x", 10**400, "'x' has the id 10000"),
        ("a", 5, "has the id 5, which is that of '.*'$"),
        ("x", True, "'x' has the id True"),
        ("x", 7.0, r"'x' has the id 7\.0"),
        ("x", "7", "'x' has the id '7'"),
        ("x", None, "'x' has the id None"),
        ("x", [[7]], r"'x' has the id \[\[7\]\]"),
    ],
)
def test_an_id_that_is_no_row_of_an_embedding_is_named(tmp_path, write, token, number, message):
    vocabulary = write(tmp_path)
    path = next(tmp_path.glob("*.json"))
    path.write_text(json.dumps(vocabulary | {token: number}))
    with pytest.raises(CorruptDataError, match=f"expected every id from 0 to .* once.*{message}"):
        tokenization.load_vocabulary_files(tmp_path)


def test_a_token_that_stands_twice_and_a_byte_without_one_are_named(tmp_path):
    vocabulary = write_gpt2(tmp_path)
    path = tmp_path / "encoder.json"
    path.write_text(json.dumps(vocabulary)[:-1] + ', "bc": 259}')
    with pytest.raises(CorruptDataError, match="the key 'bc' twice"):
        tokenization.load_vocabulary_files(tmp_path)
    path.write_text(json.dumps({token.replace("x", "xx"): i for token, i in vocabulary.items()}))
    with pytest.raises(CorruptDataError, match="none for 1 of them, such as 'x'"):
        tokenization.load_vocabulary_files(tmp_path)
    path.write_text('{"a":' * 100_000)
    with pytest.raises(CorruptDataError, match="nested too deeply"):
        tokenization.load_vocabulary_files(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("b c", "expected each merge once, got that of line 3 again"),
        ("b ", "expected two tokens, got 'b '"),
        (" b", "expected two tokens, got ' b'"),
        ("b  c", "expected two tokens"),
    ],
)
def test_a_bad_merge_is_named_by_its_line(tmp_path, line, message):
    write_gpt2(tmp_path, merges=("Ġ a", "b c", line))
    with pytest.raises(CorruptDataError, match=rf"vocab\.bpe, line 4: {message}"):
        tokenization.load_vocabulary_files(tmp_path)


@pytest.mark.parametrize("number", [4_000_000_000, 5])
def test_a_saved_tokenizer_with_other_ids_is_named(tokenizer, tmp_path, number):
    content = json.loads(tokenizer.to_str())
    content["model"]["vocab"]["x"] = number
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(CorruptDataError, match=r"tokenizer\.json: expected every id from 0 to 279"):
        tokenization.load_tokenizer(tmp_path / "tokenizer.json")


def test_models_and_batches_do_not_load_the_tokenizers_library():
    package = Path(tokenization.__file__).parents[1]
    rooms = [*package.glob("models/**/*.py"), *package.glob("text/*.py")]
    paths = [path for path in rooms if path.name not in ("tokenization.py", "bert.py")]
    assert len(paths) > 20
    imports = [line for path in paths for line in path.read_text().splitlines() if "import" in line]
    assert not [line for line in imports if re.search(r"\btokeniz", line)]
    assert special_ids.PAD_ID is tokenization.PAD_ID


@pytest.mark.skipif(not DATA, reason="JAXSENS_DATA is not set")
def test_the_real_gpt2_files():
    try:
        tokenizer = tokenization.load_vocabulary_files(f"{DATA}/tokenizers/gpt2")
    except DatasetNotFoundError:
        pytest.skip("JAXSENS_DATA has no tokenizers/gpt2")
    assert tokenizer.get_vocab_size() == 50_261
    [ids] = tokenization.encode(tokenizer, singles("Hello world"))
    np.testing.assert_array_equal(ids, [0, 15496 + 4, 995 + 4, 2])  # GPT-2's published ids


@pytest.mark.skipif(not DATA, reason="JAXSENS_DATA is not set")
def test_real_sentences_are_as_long_as_the_paper_has_them():
    try:
        tokenizer = tokenization.load_vocabulary_files(f"{DATA}/tokenizers/gpt2")
        texts = load_text("mrpc", "validation", DATA)
    except DatasetNotFoundError:
        pytest.skip("JAXSENS_DATA has no tokenizers/gpt2 or no mrpc")
    lengths = [len(ids) for ids in tokenization.encode(tokenizer, texts)]
    assert max(lengths) < 128
    assert 50 < np.mean(lengths) < 56
