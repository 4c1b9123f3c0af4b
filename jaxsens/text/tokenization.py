"""Byte-level BPE tokenizers with RoBERTa's special tokens, and texts as sequences of token ids.

A text becomes `<s> A </s>`, a pair `<s> A </s></s> B </s>`. The ids 0, 1, 2, 3 are `<s>`, `<pad>`,
`</s>`, `<unk>` as in roberta-base, and `<mask>` is the last id. Every byte has a token, so no text
is ever unknown, and a literal "</s>" in a text is encoded as text, not as the end of it.
"""

import os
from collections.abc import Iterable
from pathlib import Path, PurePath

import numpy as np
import tokenizers
from jaxtyping import Int32

from jaxsens.core.files import write_atomic
from jaxsens.core.storage import located
from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError
from jaxsens.data.sources import files
from jaxsens.data.sources.strict_json import parse as parse_json
from jaxsens.data.text.texts import Texts
from jaxsens.text.special_ids import CLS_ID, PAD_ID, SEP_ID, UNK_ID

__all__ = [
    "CLS_ID",
    "PAD_ID",
    "SEP_ID",
    "UNK_ID",
    "encode",
    "load_tokenizer",
    "load_vocabulary_files",
    "ordinary_ids",
    "save_tokenizer",
    "token_texts",
    "train_bpe",
]

_FIRST = ("<s>", "<pad>", "</s>", "<unk>")
_LAST = "<mask>"
_VOCABULARY_FILES = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))
_GPT2_END = "<|endoftext|>"
#: Four special tokens and all bytes that BPE starts from, and `<mask>`.
_SMALLEST = len(_FIRST) + 256 + 1
#: Vocabularies of 50,000 tokens take one or two megabytes.
_MAX_FILE = 1 << 26


def train_bpe(texts: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    """Learns a byte-level BPE; the same texts in the same order give the same tokenizer.

    Args:
      texts: what to learn from, training texts only: `Texts.strings` gives them.
      vocab_size: the number of tokens, special ones included. Texts too small for so many give
        fewer: `tokenizer.get_vocab_size()` has the number.

    Raises:
      ValueError: `vocab_size` is too small for all bytes and the special tokens.

    Example:
      >>> tokenizer = train_bpe(["the cat sat on the mat"] * 2, vocab_size=270)
      >>> tokenizer.get_vocab_size(), tokenizer.token_to_id("<mask>")
      (270, 269)
      >>> tokenizer.encode("the cat", "the hat").tokens
      ['<s>', 'the', 'Ġcat', '</s>', '</s>', 'the', 'Ġ', 'h', 'at', '</s>']
    """
    if vocab_size < _SMALLEST:
        raise ValueError(
            f"expected a vocabulary of at least {_SMALLEST} (256 bytes, {len(_FIRST) + 1} special "
            f"tokens), got {vocab_size}"
        )
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size - 1,  # `<mask>` comes after
        special_tokens=list(_FIRST),
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _finished(tokenizer)


def ordinary_ids(vocab_size: int) -> range:
    """The ids that are not special, of a tokenizer of this module with `vocab_size` ids.

    Example:
      >>> ordinary_ids(50_265)
      range(4, 50264)
    """
    return range(UNK_ID + 1, vocab_size - 1)


def token_texts(tokenizer: tokenizers.Tokenizer, ids: Iterable[int]) -> list[str]:
    """The text of each token, with the space before it; of a part of a letter, "�".

    Args:
      tokenizer: of this module.
      ids: token ids.

    Example:
      >>> tokenizer = train_bpe(["the cat sat on the mat"] * 2, vocab_size=270)
      >>> token_texts(tokenizer, tokenizer.encode("the cat").ids)
      ['<s>', 'the', ' cat', '</s>']
    """
    decoder = tokenizers.decoders.ByteLevel()
    return [decoder.decode([tokenizer.id_to_token(int(each)) or ""]) for each in ids]


def load_vocabulary_files(folder: str | os.PathLike[str]) -> tokenizers.Tokenizer:
    """Reads the vocabulary and merges of RoBERTa, or those of GPT-2 with RoBERTa's special tokens.

    RoBERTa's own files are recognised by their special tokens and keep their ids: roberta-base has
    50,265.

    GPT-2's files have the same merges, so they split a text into the same tokens, but RoBERTa
    numbers these by their frequency in its own training text, which GPT-2's files do not tell. Here
    GPT-2's id i becomes i + 4, `<|endoftext|>` (GPT-2's last) is left out and `<mask>` comes last:
    of 50,257 tokens 50,256 stay, and 50,261 is the total. A model trained from scratch cannot tell
    the difference; a pretrained roberta-base needs its own files.

    Args:
      folder: with `encoder.json` and `vocab.bpe`, or `vocab.json` and `merges.txt`.

    Raises:
      DatasetNotFoundError: neither pair of files is there.
      CorruptDataError: a file is not what it should be, or the two do not belong together.

    Example:
      >>> load_vocabulary_files("tokenizers/gpt2").get_vocab_size()  # doctest: +SKIP
      50261
    """
    folder = Path(folder)
    pairs = [[folder / name for name in names] for names in _VOCABULARY_FILES]
    found = next((pair for pair in pairs if all(map(files.is_there, pair))), None)
    if found is None:
        expected = " or ".join(" and ".join(names) for names in _VOCABULARY_FILES)
        raise DatasetNotFoundError(f"{folder}: expected {expected}, got neither pair of files")
    vocabulary, merges = _read_vocabulary(found[0]), _read_merges(found[1])
    try:
        model = tokenizers.models.BPE(vocab=vocabulary, merges=merges)
    except Exception as error:  # the Rust library has no type of its own
        raise CorruptDataError(
            f"{found[1]}: expected merges of tokens in {found[0].name}, got others ({error})"
        ) from None
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return _finished(tokenizer)


def save_tokenizer(tokenizer: tokenizers.Tokenizer, path: str | os.PathLike[str]) -> None:
    """Writes a tokenizer as one `tokenizer.json`, whole or not at all.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     save_tokenizer(train_bpe(["a b"], 261), f"{folder}/tokenizer.json")
      ...     load_tokenizer(f"{folder}/tokenizer.json").get_vocab_size()
      261
    """
    write_atomic(Path(path), tokenizer.to_str())


def load_tokenizer(path: str | os.PathLike[str]) -> tokenizers.Tokenizer:
    """Reads what `save_tokenizer` wrote.

    Raises:
      FileNotFoundError: there is no such file.
      CorruptDataError: it is not a tokenizer, or its special tokens have other ids.
    """
    path = path if isinstance(path, PurePath) else located(os.fspath(path))
    content = files.read_bytes(path, _MAX_FILE)
    try:
        tokenizer = tokenizers.Tokenizer.from_str(content.decode("utf-8"))
    except Exception as error:  # the Rust library has no type of its own
        raise CorruptDataError(f"{path}: expected a tokenizer.json, got ({error})") from None
    _check_ids(path, tokenizer.get_vocab())
    expected = {token: i for i, token in enumerate(_FIRST)} | {
        _LAST: tokenizer.get_vocab_size() - 1
    }
    got = {token: tokenizer.token_to_id(token) for token in expected}
    if got != expected:
        raise CorruptDataError(f"{path}: expected the special tokens {expected}, got {got}")
    tokenizer.encode_special_tokens = True
    return tokenizer


def encode(
    tokenizer: tokenizers.Tokenizer, texts: Texts, max_length: int = 128
) -> list[Int32[np.ndarray, " _"]]:
    """Each text or pair as token ids, with special tokens and without padding.

    A text that is too long is cut at its end; in a pair the longer one is cut until both are
    equally long, then both are ("longest first").

    Args:
      tokenizer: made by this module.
      texts: n texts or pairs.
      max_length: the longest sequence allowed, special tokens included.

    Returns:
      n int32 arrays, each of 3 to max_length ids.

    Raises:
      ValueError: `max_length` is too small for the special tokens and one token of each text.

    Example:
      >>> texts = Texts(("aaaa",), ("bb",), np.array([1], np.int32))
      >>> [ids] = encode(train_bpe(["x"], 261), texts, max_length=8)
      >>> len(ids), ids[[0, 3, 4, 7]].tolist()
      (8, [0, 2, 2, 2])
    """
    smallest = 3 if texts.second is None else 6
    if max_length < smallest:
        raise ValueError(
            f"expected max_length of at least {smallest} (special tokens and one of each text), "
            f"got {max_length}"
        )
    inputs = texts.first if texts.second is None else zip(texts.first, texts.second, strict=True)
    tokenizer.enable_truncation(max_length, strategy="longest_first")
    try:
        encodings = tokenizer.encode_batch_fast(list(inputs))
    finally:
        tokenizer.no_truncation()
    return [np.array(encoding.ids, np.int32) for encoding in encodings]


def _finished(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    tokenizer.add_special_tokens([*_FIRST, _LAST])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.post_processor = tokenizers.processors.RobertaProcessing(
        (_FIRST[SEP_ID], SEP_ID), (_FIRST[CLS_ID], CLS_ID), add_prefix_space=False
    )
    tokenizer.encode_special_tokens = True
    return tokenizer


def _read_vocabulary(path: Path) -> dict[str, int]:
    """Tokens and their ids, special ones included: RoBERTa's as they are, GPT-2's renumbered."""
    content = files.read_bytes(path, _MAX_FILE)
    try:
        vocabulary = parse_json(content)
    except ValueError as error:
        raise CorruptDataError(f"{path}: expected JSON, got {error}") from None
    if not isinstance(vocabulary, dict):
        raise CorruptDataError(f"{path}: expected a JSON object from tokens to ids, got another")
    if {*_FIRST, _LAST} & vocabulary.keys():
        _check_special(path, vocabulary)
        _check_ids(path, vocabulary)
        return vocabulary
    _check_ids(path, vocabulary)
    ordinary = sorted((number, token) for token, number in vocabulary.items() if token != _GPT2_END)
    return {token: i for i, token in enumerate((*_FIRST, *(token for _, token in ordinary)))}


def _check_special(path: Path, vocabulary: dict[str, int]) -> None:
    """Refuses a vocabulary whose special tokens do not have the ids that RoBERTa gives them."""
    expected = {token: i for i, token in enumerate(_FIRST)} | {_LAST: len(vocabulary) - 1}
    got = {token: vocabulary.get(token) for token in expected}
    if got != expected:
        raise CorruptDataError(
            f"{path}: expected GPT-2's tokens, or RoBERTa's with {expected}, got {got}"
        )


def _check_ids(path: PurePath, vocabulary: dict[str, int]) -> None:
    """Refuses a vocabulary whose ids are not 0, 1, 2, …, or in which a byte has no token."""
    last = len(vocabulary) - 1
    owners: dict[int, str] = {}
    for token, number in vocabulary.items():
        is_id = isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= last
        if is_id and owners.setdefault(number, token) == token:
            continue
        problem = f", which is that of {owners[number]!r}" if is_id else ""
        ids = {repr(each) for each in vocabulary.values()}
        raise CorruptDataError(
            f"{path}: expected every id from 0 to {last} once, got others; its {last + 1} tokens "
            f"have {len(ids)} ids; {token[:40]!r} has the id {repr(number)[:40]}{problem}"
        )
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    if missing := sorted(set(alphabet) - vocabulary.keys()):
        raise CorruptDataError(
            f"{path}: expected a token for each of 256 bytes, got none for {len(missing)} of them, "
            f"such as {missing[0]!r}"
        )


def _read_merges(path: Path) -> list[tuple[str, str]]:
    try:
        lines = files.read_bytes(path, _MAX_FILE).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise CorruptDataError(f"{path}: expected UTF-8, got something else ({error})") from None
    merges: dict[tuple[str, str], int] = {}
    for number, line in enumerate(lines, 1):
        if line.startswith("#version") or not line.strip():
            continue
        first, *others = line.rstrip("\r").split(" ")
        if len(others) != 1 or not first or not others[0]:
            raise CorruptDataError(f"{path}, line {number}: expected two tokens, got {line[:40]!r}")
        before = merges.setdefault((first, others[0]), number)
        if before != number:
            raise CorruptDataError(
                f"{path}, line {number}: expected each merge once, got that of line {before} again"
            )
    return list(merges)
