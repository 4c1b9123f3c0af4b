"""The embedding layer of BERT, from the files of bert-base-uncased, without the rest of the model.

    e_t = layer_norm(words[id_t] + positions[t] + types[0]),    d = 768 for BERT-Base

which is hidden state 0 of that model for a single text. Texts are lowered and cut into WordPieces,
`[CLS] … [SEP]`. Weights are read with the package `safetensors` (`pip install "jaxsens[bert]"`),
which holds arrays alone: nothing is unpickled, and only the tensors named here are read.

Assumption: vocab.txt belongs to the weights; only the number of its lines can be checked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from jaxtyping import Float32, Int, Int32

from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError
from jaxsens.data.sources import files

WEIGHTS, VOCABULARY = "model.safetensors", "vocab.txt"
_SPECIAL = ("[UNK]", "[CLS]", "[SEP]")
_EPSILON = 1e-12
#: BERT's vocabulary takes 230 kB.
_MAX_VOCABULARY = 1 << 26
#: The tensors, each with its names in old and new files.
_TENSORS = {
    "words": ("word_embeddings.weight",),
    "positions": ("position_embeddings.weight",),
    "types": ("token_type_embeddings.weight",),
    "scale": ("LayerNorm.weight", "LayerNorm.gamma"),
    "offset": ("LayerNorm.bias", "LayerNorm.beta"),
}


@dataclass(frozen=True, eq=False)
class BertEmbeddings:
    """Tokenizer and tables of the embedding layer.

    Attributes:
      tokenizer: WordPiece, with `[CLS]` and `[SEP]`.
      words: one row for each id.
      positions: one row for each place.
      types: one row for each segment; a single text has the first.
      scale: of the layer norm.
      offset: of the layer norm.
    """

    tokenizer: tokenizers.Tokenizer
    words: Float32[np.ndarray, "V d"]
    positions: Float32[np.ndarray, "P d"]
    types: Float32[np.ndarray, "S d"]
    scale: Float32[np.ndarray, " d"]
    offset: Float32[np.ndarray, " d"]

    def encode(self, texts: Sequence[str]) -> list[Int32[np.ndarray, " _"]]:
        """Token ids of each text, with special ones, cut to as many as there are positions."""
        self.tokenizer.enable_truncation(len(self.positions))
        found = self.tokenizer.encode_batch_fast(list(texts))
        return [np.array(each.ids, np.int32) for each in found]

    def __call__(self, ids: Int[np.ndarray, "m n"]) -> Float32[np.ndarray, "m n d"]:
        """The layer's output."""
        e = self.words[ids] + self.positions[None, : ids.shape[1]] + self.types[0]
        centred = e - e.mean(axis=-1, keepdims=True)
        deviation = np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + _EPSILON)
        return (self.scale * centred / deviation + self.offset).astype(np.float32)


def load_bert(folder: Path | str) -> BertEmbeddings:
    """Reads `model.safetensors` and `vocab.txt`.

    Raises:
      DatasetNotFoundError: a file is not there.
      CorruptDataError: a file is not what it should be, or the two do not belong together.
      ValueError: the package safetensors is not installed.

    Example:
      >>> load_bert("bert-base-uncased").words.shape  # doctest: +SKIP
      (30522, 768)
    """
    folder = Path(folder)
    for name in (WEIGHTS, VOCABULARY):
        if not files.is_there(folder / name):
            raise DatasetNotFoundError(
                f"{folder}: expected {WEIGHTS} and {VOCABULARY} of bert-base-uncased, got no {name}"
            )
    tensors = _read_tensors(folder / WEIGHTS)
    tokenizer = _read_vocabulary(folder / VOCABULARY, len(tensors["words"]))
    d = tensors["words"].shape[1:]
    for name, values in tensors.items():
        if values.shape[-1:] != d or values.ndim != (1 if name in ("scale", "offset") else 2):
            raise CorruptDataError(
                f"{folder / WEIGHTS}: expected {name} of width {d[0] if d else '?'}, got shape "
                f"{values.shape}"
            )
    return BertEmbeddings(tokenizer, **tensors)


def _read_tensors(path: Path) -> dict[str, np.ndarray]:
    try:
        import safetensors
    except ImportError:
        raise ValueError(
            f'{path} needs the package safetensors: pip install "jaxsens[bert]"'
        ) from None
    files.size_of(path)  # an ordinary file, or one line that says what it is
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            return {name: _tensor(path, file, endings) for name, endings in _TENSORS.items()}
    except (safetensors.SafetensorError, OSError, TypeError) as error:
        raise CorruptDataError(
            f"{path}: expected safetensors, got ({' '.join(str(error).split()):.120})"
        ) from None


def _tensor(path: Path, file: Any, endings: tuple[str, ...]) -> np.ndarray:
    there = set(file.keys())
    for prefix in ("bert.embeddings.", "embeddings."):
        for ending in endings:
            if prefix + ending in there:
                return np.asarray(file.get_tensor(prefix + ending), np.float32)
    raise CorruptDataError(
        f"{path}: expected a tensor bert.embeddings.{endings[0]}, got none among {len(there)}"
    )


def _read_vocabulary(path: Path, num_rows: int) -> tokenizers.Tokenizer:
    try:
        text = files.read_bytes(path, _MAX_VOCABULARY).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptDataError(f"{path}: expected UTF-8, got something else ({error})") from None
    lines = text.removesuffix("\n").split("\n")
    vocabulary = {line.rstrip("\r"): i for i, line in enumerate(lines)}
    missing = [token for token in _SPECIAL if token not in vocabulary]
    if missing or len(lines) != num_rows or len(vocabulary) != num_rows:
        raise CorruptDataError(
            f"{path}: expected {num_rows} different tokens, one a line, with "
            f"{', '.join(_SPECIAL)}; got {len(vocabulary)} in {len(lines)} lines"
            + (f", without {missing[0]}" if missing else "")
        )
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token=_SPECIAL[0]))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    (first, last) = ((token, vocabulary[token]) for token in _SPECIAL[1:])
    tokenizer.post_processor = tokenizers.processors.BertProcessing(last, first)
    return tokenizer
