"""The texts of the experiment `language`: train and validation split, as text and as token ids.

Tokens are those of a byte-level BPE, trained on the training text or read from files.
"""

import functools
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
import tokenizers
from jaxtyping import Int

from jaxsens.data.text import Texts, load_text
from jaxsens.reporting.cached import cached_file
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.text import tokenization as bpe
from jaxsens.text.buckets import Bucket, into_buckets

from .._common.training import require_batch
from .config import MEASURED_LENGTHS, Config

_TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class Corpus:
    """Train and validation split."""

    train: Texts
    validation: Texts


def load(config: Config, data_dir: PurePath | None) -> Corpus:
    """The texts that the config asks for; those to train on in an order that the seed decides.

    Files may have one class first, as IMDB's do, and then their first rows would be of it alone.

    Raises:
      ValueError: there are fewer texts than a batch has, more steps than can be counted, or no
        room for a token of each text.
    """
    if config.tokenizer is not None:
        bpe.load_vocabulary_files(config.tokenizer)
    read = functools.partial(
        load_text, config.dataset, data_dir=data_dir, skip_bad_rows=config.skip_bad_rows
    )
    train = read("train")
    # A generator of its own: `encode` draws from the seed which of these texts are measured.
    order = np.random.default_rng((config.seed, 1)).permutation(len(train))
    train = train.subset(order[: config.num_train])
    require_batch(config.batch_size, len(train), config.epochs or 1)
    smallest = 3 if train.second is None else 6
    if (config.max_length or smallest) < smallest:
        raise ValueError(
            f"max_length must be at least {smallest} for {config.dataset} (special tokens and one "
            f"of each text); got {config.max_length}; the nearest is {smallest}"
        )
    return Corpus(train, read("validation"))


@dataclass(frozen=True, eq=False)
class Encoded:
    """Texts as token ids."""

    sequences: list[Int[np.ndarray, " _"]]
    labels: Int[np.ndarray, " n"]

    def subset(self, rows: Int[np.ndarray, " m"]) -> "Encoded":
        """Some of the texts."""
        return Encoded([self.sequences[row] for row in rows], self.labels[rows])

    @functools.cached_property
    def buckets(self) -> list[Bucket]:
        """By length, padded."""
        return into_buckets(self.sequences, MEASURED_LENGTHS, at_least=len(self.sequences) // 8)

    @property
    def training_lengths(self) -> tuple[int, ...]:
        """Bucket lengths to train in: finer ones, each for at least an eighth of the texts."""
        found = into_buckets(self.sequences, at_least=len(self.sequences) // 8)
        return tuple(bucket.tokens.shape[1] for bucket in found)

    @property
    def padded(self) -> Int[np.ndarray, "n T"]:
        """All in one array as wide as the longest."""
        (whole,) = into_buckets(self.sequences, [max(map(len, self.sequences))])
        return whole.tokens


@dataclass(frozen=True, eq=False)
class TextData:
    """What is trained on and measured."""

    train: Encoded
    validation: Encoded
    measured: dict[str, Encoded]
    along: dict[str, Encoded]
    tokenizer: tokenizers.Tokenizer

    @property
    def vocab_size(self) -> int:
        """The number of token ids."""
        return self.tokenizer.get_vocab_size()


def encode(config: Config, corpus: Corpus, folder: RunFolder) -> TextData:
    """Token ids, by a tokenizer that the run folder keeps; and which texts are measured."""

    def make() -> str:
        if config.tokenizer is not None:
            return bpe.load_vocabulary_files(config.tokenizer).to_str()
        return bpe.train_bpe(corpus.train.strings(), config.vocab_size or 1).to_str()

    file = folder.path / _TOKENIZER
    tokenizer = cached_file(folder, _TOKENIZER, make, lambda _: bpe.load_tokenizer(file))

    def encoded(texts: Texts) -> Encoded:
        return Encoded(bpe.encode(tokenizer, texts, config.max_length or 128), texts.labels)

    train, validation = encoded(corpus.train), encoded(corpus.validation)
    rng = np.random.default_rng(config.seed)
    chosen = {
        "train": rng.permutation(len(train.labels))[: config.num_measured],
        "validation": rng.permutation(len(validation.labels))[: config.num_measured],
    }
    whole = {"train": train, "validation": validation}
    measured = {split: texts.subset(chosen[split]) for split, texts in whole.items()}
    along = {
        split: texts.subset(np.arange(min(config.num_along or 1, len(texts.labels))))
        for split, texts in measured.items()
    }
    return TextData(train, validation, measured, along, tokenizer)
