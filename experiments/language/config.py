"""The flags of the experiment `language`."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated

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
from jaxsens.cli.config import ExperimentConfig, Preset
from jaxsens.core import memory

from .._common.seeds import Seeds, check_seeds
from .._common.training import require_batch
from .paper import DatasetName, ModelName, Size, scale

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
    """Texts of a step."""
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
    num_seeds: Seeds = 1
    """Trainings of each model of the paper, from the seed on, on the same texts; `--seeds` is the
    same."""
    until_accuracy: Annotated[float, Range(0, 1, "()")] | None = None
    """Training accuracy at which models are compared, beside the end of training; default the
    largest that every training reaches."""

    def check(self) -> None:
        """Raises ValueError for models or texts that cannot be, or do not fit into memory."""
        check_seeds(self.seed, self.num_seeds)
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
