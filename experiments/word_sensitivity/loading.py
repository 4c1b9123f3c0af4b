"""What the experiment `word_sensitivity` reads: runs with trained models, and BERT's embeddings."""

import dataclasses
import importlib
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from jaxsens.core import hosts, storage
from jaxsens.core.fingerprint import fingerprint
from jaxsens.data.errors import CorruptDataError
from jaxsens.data.text import load_text
from jaxsens.reporting import run_identity
from jaxsens.text import tokenization as bpe
from jaxsens.text.bert import load_bert
from jaxsens.text.buckets import into_buckets
from jaxsens.training.bucketed import BucketTrainer
from jaxsens.training.trainer import Trainer

from .._common import reuse
from .config import Config
from .texts import Pool

_TOKENIZER = "tokenizer.json"

#: Texts of a language run that its embeddings are taken of.
_POOL = 2_000


@dataclass(frozen=True, eq=False)
class ReusedModel:
    """A model of another run, and how it was trained."""

    name: str
    label: str
    trainer: Trainer
    key_index: int


@dataclass(frozen=True, eq=False)
class ReusedRun:
    """A run of `language` or `vision`.

    Attributes:
      folder: where it is.
      title: its experiment and dataset.
      seed: its seed.
      x: what it was trained on: images, or token ids of texts, padded at their ends.
      y: labels.
      patch: side of a patch; None for texts.
      models: what it trained.
    """

    folder: str
    title: str
    seed: int
    x: Shaped[np.ndarray, "n ..."]
    y: Int[np.ndarray, " n"]
    patch: int | None
    models: tuple[ReusedModel, ...]


@dataclass(frozen=True, eq=False)
class Loaded:
    """All that was read."""

    reviews: Pool | None
    runs: tuple[ReusedRun, ...]

    def sources(self) -> dict[str, Any]:
        """What decides the results, for the run's identity."""
        found: dict[str, Any] = {f"run {i}": [run.x, run.y] for i, run in enumerate(self.runs)}
        if self.reviews is not None:
            found["reviews"] = [*self.reviews.tokens, self.reviews.labels]
            found["embeddings"] = self.reviews.embed(self.reviews.tokens[0][None])
        return found


def load(config: Config, data_dir: PurePath | None) -> Loaded:
    """Reads what the config names; nothing by default.

    Raises:
      ValueError: there is not enough memory, a folder is not a run of `language` or `vision`, its
        data has changed, two runs have a model of the same name, or there are no files of BERT.
    """
    config.require_memory()
    runs = tuple(_run(folder, data_dir) for folder in config.reuse)
    owners: dict[str, str] = {}
    for run in runs:
        for model in run.models:
            other = owners.setdefault(model.name, run.folder)
            if other != run.folder:
                raise ValueError(
                    f"{other} and {run.folder} both have a model {model.name}; reuse one of them"
                )
    return Loaded(None if config.embeddings is None else _reviews(config, data_dir), runs)


def _reviews(config: Config, data_dir: PurePath | None) -> Pool:
    bert = load_bert(config.embeddings or "")
    parts = [load_text("imdb", split, data_dir=data_dir) for split in ("train", "validation")]
    tokens = [ids for part in parts for ids in bert.encode(part.first)]
    labels = np.concatenate([2 * part.labels - 1 for part in parts])
    width = bert.words.shape[1]
    pool = Pool("IMDB in BERT's embeddings", tokens, labels, width, bert)
    if pool.num_of(min(config.n)) < config.num_seeds:
        raise CorruptDataError(
            f"IMDB has {pool.num_of(min(config.n))} reviews of at least n={min(config.n)} tokens, "
            f"expected num_seeds={config.num_seeds} or more; choose a smaller --n"
        )
    return pool


def _run(folder: str, data_dir: PurePath | None) -> ReusedRun:
    experiment, fields = reuse.config_of(folder)
    readers = {"language": _language_run, "vision": _vision_run}
    if experiment not in readers:
        raise ValueError(
            f"{folder} is a run of {experiment}; reuse takes runs of {' and '.join(readers)}"
        )
    # Found by its name, as the command line finds it: experiments do not know each other.
    module: Any = importlib.import_module(f"..{experiment}", __package__)
    if "reuse" in fields:
        fields["reuse"] = None
    try:
        config = module.Config(**fields)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{folder} cannot be reused: its config.json: {error}") from error
    return readers[experiment](folder, module, config, data_dir)


def _vision_run(folder: str, module: Any, config: Any, data_dir: PurePath | None) -> ReusedRun:
    images = module.load(config, data_dir)
    reuse.check_trained_on(folder, fingerprint({"x": images.x, "y": images.y}))
    models = tuple(
        ReusedModel(
            spec.name,
            spec.label,
            Trainer(spec.model, spec.recipe, config.epochs, spec.objective),
            spec.key_index,
        )
        for spec in config.model_specs()
    )
    title = f"vision, {config.dataset}"
    return ReusedRun(folder, title, config.seed, images.x, images.y, config.patch, models)


def _language_run(folder: str, module: Any, config: Any, data_dir: PurePath | None) -> ReusedRun:
    corpus = module.load(config, data_dir)
    there = reuse.stored(folder).get("data")
    if there is not None and (others := run_identity.other_data(there, fingerprint(corpus))):
        raise ValueError(
            f"models of {folder} cannot be reused: they were trained on other data "
            f"({', '.join(others)} differ); give the --data-dir of that run"
        )
    tokenizer = _tokenizer_of(folder)
    sequences = bpe.encode(tokenizer, corpus.train, config.max_length)
    (padded,) = into_buckets(sequences, [max(map(len, sequences))])
    models = tuple(
        ReusedModel(
            spec.name,
            spec.label,
            BucketTrainer(spec.model, spec.recipe, config.epochs),
            spec.key_index,
        )
        for spec in module.models.model_specs(config, tokenizer.get_vocab_size())
        if spec.in_full
    )
    x, y = padded.tokens, corpus.train.labels[padded.example_ids]
    some = np.random.default_rng(config.seed).permutation(len(x))[:_POOL]
    title = f"language, {config.dataset}"
    run = ReusedRun(folder, title, config.seed, x, y, None, models)
    return dataclasses.replace(run, x=x[some], y=y[some])


def _tokenizer_of(folder: str) -> Any:
    """The tokenizer of another run, which process 0 reads."""
    place = storage.at(folder)

    def read() -> bytes:
        if not place.exists(_TOKENIZER):
            raise ValueError(f"{folder} has no tokenizer.json: let that run come to its end first")
        return place.read(_TOKENIZER)

    content = hosts.from_first(read)
    if hosts.is_first():
        return bpe.load_tokenizer(place.location / _TOKENIZER)
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / _TOKENIZER
        copy.write_bytes(content)
        return bpe.load_tokenizer(copy)
