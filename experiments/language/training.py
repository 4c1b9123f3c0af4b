"""What the language experiment trains, and on what: flags, token ids, models.

Tokens are those of a byte-level BPE, trained on the training text or read from files.
"""

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from jaxtyping import Int

from jaxsens.cli.bounds import (
    Count,
    Decay,
    Depth,
    Draws,
    Epochs,
    Folder,
    Range,
    Rate,
    Seed,
    Several,
)
from jaxsens.cli.config import ExperimentConfig
from jaxsens.core import memory
from jaxsens.data.text import Texts, load_text
from jaxsens.models import TextModel
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.text import tokenization as bpe
from jaxsens.text.buckets import Bucket, into_buckets
from jaxsens.training.trainer import Recipe

from .._common.study import cached, require_batch
from .paper import LABELS, DatasetName, ModelName, Preset, Size, paper_values, scale

#: Bucket lengths of measurements: fewer than in training, for each compiles anew for every way of
#: measuring.
MEASURED_LENGTHS = (32, 64, 96, 128)
#: Every byte is a token, and there are five special ones.
SMALLEST_VOCABULARY = 261
#: A variance of the noise; embeddings are measured in units of its σ, so it is not 0.
Noise = Annotated[float, Range(1e-12, 1e6)]


@dataclass(frozen=True)
class Config(ExperimentConfig):
    """Flags of the experiment; None means the paper's or the preset's value for the dataset."""

    dataset: DatasetName = "paraphrases"
    """Texts to train on; paraphrases are generated."""
    models: Annotated[tuple[ModelName, ...], Several()] = (
        "roberta-softmax",
        "roberta-relu",
        "gpt2",
        "lstm",
    )
    """Models to compare."""
    depths: Annotated[tuple[Depth, ...], Several(at_least=0)] = ()
    """Other depths of RoBERTa and the LSTM (Fig. 19 has 4, 8 and 12)."""
    authors: bool = True
    """Also train the LSTM as the authors did, with embeddings and head frozen, and measure RoBERTa
    as they did, and show how much of the gap between the two that explains."""
    epochs: Epochs | None = None
    """Passes over the training texts."""
    evaluate_every: Epochs | None = None
    """Epochs between two evaluations."""
    num_train: Count | None = None
    """Training texts to use, drawn by the seed; default all."""
    batch_size: Count = 32
    """Texts a step."""
    learning_rate: Rate | None = None
    """First learning rate of AdamW."""
    decay: Annotated[float, Range(1e-30, 10)] = 0.9
    """What the learning rate is multiplied by after every epoch."""
    weight_decay: Decay = 1e-4
    """AdamW's."""
    dropout: Annotated[float, Range(0, 1, "[)")] = 0.1
    """Rate of dropout in all models."""
    vocab_size: Annotated[int, Range(SMALLEST_VOCABULARY, 10**7)] | None = None
    """Token ids of the BPE that is trained on the training texts."""
    tokenizer: Folder | None = None
    """Folder with RoBERTa's or GPT-2's vocabulary files, in place of training a BPE."""
    max_length: Annotated[int, Range(3, MEASURED_LENGTHS[-1])] | None = None
    """Tokens of a text or pair, at the most."""
    depth: Depth | None = None
    """Layers."""
    heads: Count | None = None
    """Heads of the transformers."""
    width: Count | None = None
    """Width of the models."""
    hidden: Count | None = None
    """Feed-forward width of RoBERTa; the authors kept the 3072 of roberta-base."""
    prenorm: bool = True
    """Layer-norm GPT-2's embeddings, so that noise is as large for it as for the others; the
    authors' GPT-2 does not."""
    variances: Annotated[tuple[Noise, ...], Several()] = (15.0, 4.0)
    """Variances of the noise; the first is that of the main figure."""
    num_samples: Draws = 3
    """Draws for each token."""
    num_measured: Count | None = None
    """Texts of each measurement at the end."""
    num_along: Count | None = None
    """Texts of each measurement along training."""
    skip_bad_rows: bool = False
    """Leave out rows of the data files that cannot be read, instead of stopping."""
    seed: Seed = 1
    """Decides weights, order, dropout, noise and which texts are trained on and measured."""

    def check(self) -> None:
        """Raises ValueError for models or texts that cannot be, or do not fit into memory."""
        if self.num_train is not None:
            require_batch(self.batch_size, self.num_train)
        if (self.width or 1) % (self.heads or 1) and self.width is not None:
            raise ValueError(
                f"heads={self.heads} do not divide width={self.width}; choose a --width that is a "
                "multiple"
            )
        names = [f"{variance:g}" for variance in self.variances]
        if len(set(names)) < len(names):
            raise ValueError(
                f"variances must differ in six digits, for they name what was measured; got "
                f"{self.variances}"
            )
        depth, width = max((self.depth or 1, *self.depths)), self.width or 1
        weights = width * ((self.vocab_size or 1) + depth * (4 * width + 2 * (self.hidden or 1)))
        # Weights, gradients and AdamW's two moments, float32.
        memory.require(
            16 * weights,
            f"training a model with vocab_size={self.vocab_size}, depth={depth}, "
            f"width={self.width}, hidden={self.hidden}",
            remedy="choose smaller ones",
        )

    def filled(self, preset: Preset) -> "Config":
        """The config with everything that was left open filled in."""
        of_preset = scale(self.dataset, preset)
        values = dataclasses.asdict(of_preset) | dataclasses.asdict(of_preset.size)
        known = {f.name for f in dataclasses.fields(self)}
        filled = {k: v for k, v in values.items() if k in known and getattr(self, k) is None}
        return dataclasses.replace(self, **filled)

    def size(self, vocab_size: int) -> Size:
        """The models' size."""
        sizes = (self.depth, self.heads, self.width, self.hidden)
        depth, heads, width, hidden = (size or 1 for size in sizes)
        return Size(vocab_size, depth, heads, width, hidden, self.dropout, self.prenorm)


@dataclass(frozen=True)
class Corpus:
    """Train and validation split."""

    train: Texts
    validation: Texts


def load(config: Config, data_dir: Path | None) -> Corpus:
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
    # A stream of its own: `encode` draws from the seed which of these texts are measured.
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
    vocab_size: int


def encode(config: Config, corpus: Corpus, folder: RunFolder) -> TextData:
    """Token ids, by a tokenizer that the run folder keeps; and which texts are measured."""

    def make() -> str:
        if config.tokenizer is not None:
            return bpe.load_vocabulary_files(config.tokenizer).to_str()
        return bpe.train_bpe(corpus.train.strings(), config.vocab_size or 1).to_str()

    file = folder.path / "tokenizer.json"
    tokenizer = cached(folder, file.name, make, lambda _: bpe.load_tokenizer(file))

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
    return TextData(train, validation, measured, along, tokenizer.get_vocab_size())


@dataclass(frozen=True)
class TextArm:
    """One model and its way of training; `paper` is the paper's sensitivity, if it gives one."""

    name: str
    label: str
    model: TextModel
    recipe: Recipe
    stream: int
    paper: float | None = None

    @property
    def in_full(self) -> bool:
        """Whether it is measured in every way, or in the main way alone."""
        return self.name in LABELS


def arms(config: Config, vocab_size: int) -> list[TextArm]:
    """What is trained: the models, their other depths, and the LSTM as the authors trained it."""
    size = config.size(vocab_size)
    recipe = Recipe(
        *("adamw", config.learning_rate or 0.0, config.batch_size, "step"),
        decay=config.decay,
        decay_epochs=1,
        weight_decay=config.weight_decay,
    )
    paper = paper_values(config.dataset, config.variances[0])
    found = [
        TextArm(name, LABELS[name], size.build(name), recipe, list(LABELS).index(name),
                paper.get(name))
        for name in config.models
    ]  # fmt: skip
    by_name = {each.name: each for each in found}
    for name, depth in ((n, d) for d in config.depths for n in ("roberta-softmax", "lstm")):
        if name in by_name and depth != config.depth:
            base = by_name[name]
            model = dataclasses.replace(size, depth=depth).build(_model_name(name))
            found.append(
                dataclasses.replace(
                    base,
                    name=f"{name}-depth-{depth}",
                    label=with_depth(base.label, depth),
                    model=model,
                    paper=None,
                )
            )
    if config.authors and "lstm" in by_name:
        frozen = dataclasses.replace(recipe, schedule="constant", frozen=("words", "norm", "head"))
        found.append(
            dataclasses.replace(
                by_name["lstm"], name="lstm-frozen", label="LSTM, frozen", recipe=frozen, paper=None
            )
        )
    return found


def with_depth(label: str, depth: int) -> str:
    """A model's label with its number of layers."""
    return f"{label}, {depth} layer{'s' * (depth > 1)}"


def _model_name(name: str) -> ModelName:
    return "lstm" if name == "lstm" else "roberta-softmax"
