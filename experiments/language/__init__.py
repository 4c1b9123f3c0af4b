"""Language (Figs 7, 8, 16 to 19): is RoBERTa less sensitive to its tokens than an LSTM?

Models are trained from scratch on pairs of texts. Then noise goes on one layer-normed embedding at
a time, the same for every model, and what is counted is how often the prediction changes.

    python -m jaxsens.run --exp language
        generated paraphrases, 6 min on one core: RoBERTa 0.069, GPT-2 0.069, with ReLU 0.124,
        LSTM 0.161
    python -m jaxsens.run --exp language --preset small --dataset mrpc --data-dir DATA
        MRPC, 41 min on one core of an AMD EPYC: GPT-2 0.001, RoBERTa with ReLU 0.007, RoBERTa
        0.016, LSTM 0.045; treated alike, RoBERTa keeps half of the lead that the authors' code
        gives it
    python -m jaxsens.run --exp language --preset small --data-dir DATA
        20,000 pairs of QQP, 26 min on one core: GPT-2 0.021, RoBERTa with ReLU 0.041, RoBERTa
        0.046, LSTM 0.081; treated alike, again half of the lead is left
    python -m jaxsens.run --exp language --preset paper --data-dir DATA --tokenizer DIR
        not run: for one GPU or TPU

The authors' code treats the two models differently: RoBERTa's noisy embeddings are embedded a
second time, which shrinks the noise to the scale of an embedding, and the LSTM is trained with its
embeddings and head frozen. One table says how much of the gap between them that explains.

At the end every model is measured in these ways, with the same noise:

    main           variance 15 on one layer-normed embedding at a time, training texts (Figs 7, 8)
    variance 4     the same with other noise (Fig. 16)
    validation     the same on texts not trained on (Fig. 17)
    whole text     all embeddings of a text at once ("sentence_embedding" in the authors' code)
    other words    one token, never a special one, replaced by a random one, in place of noise
    renormalised   noisy embeddings layer-normed again, for all models alike
    authors        noisy embeddings through the authors' path, which embeds RoBERTa's twice

`small` reduces the models to 2 layers of width 64 (and 1 and 4 layers for Fig. 19) with 4 heads, a
feed-forward width of 256 and a vocabulary of 8,000, with dropout 0.1 and AdamW as in the paper but
a learning rate of 5e-4. It trains for 4 epochs, or 10 on fewer than 5,000 texts (MRPC, RTE), and
measures 640 texts (408).

`paper` has the paper's models but, without vocabulary files, a BPE trained on the training texts:
its tokens, and if the texts give fewer than 50,265 of them also the numbers of parameters, are not
the paper's. For the exact 50,265 give roberta-base's own files: `--tokenizer DIR`, with vocab.json
and merges.txt in DIR. (GPT-2's files have the same merges, but make 50,261 tokens.)
"""

import dataclasses
import functools
from typing import Any

import jax

from jaxsens import SensitivityEstimate
from jaxsens.data.text import text_spec
from jaxsens.reporting.environment import environment
from jaxsens.reporting.results import Results
from jaxsens.reporting.run_folder import RunFolder

from .._common.study import kept, seconds
from . import claims as show
from . import measuring
from . import training as lab
from .paper import ORDERINGS
from .training import Config, Corpus, TextArm, TextData, load

__all__ = ["COST", "PRESETS", "Config", "load", "run"]

PRESETS = {
    "quick": Config(depths=(1,)),
    "small": Config(dataset="qqp", depths=(1, 4)),
    "paper": Config(dataset="qqp", depths=(8, 12)),
}

COST = {
    "quick": "generated paraphrases, offline, 6 CPU minutes",
    "small": "QQP (or --dataset mrpc), reduced models, 26 (41) minutes on one core",
    "paper": "QQP, 20 epochs, the paper's models and depths: for a GPU or TPU",
}


def run(config: Config, corpus: Corpus, folder: RunFolder) -> Results:
    """Trains, measures, compares."""
    data = lab.encode(config, corpus, folder)
    arms = lab.arms(config, data.vocab_size)
    measured: dict[str, dict[str, SensitivityEstimate]] = {}
    for each in arms:
        variables = measuring.train(config, data, each, folder).variables
        for how, options in ways(config, each).items():
            name = f"{each.name}-{how}"
            measure = functools.partial(_measure, config, data, each, variables, **options)
            measured.setdefault(how, {})[each.name] = kept(folder, name, measure)
    main = measured["main"]
    by_name = {each.name: each for each in arms}
    compared = [each for each in arms if each.name != "lstm-frozen"]
    pairs = [(by_name[a], by_name[b]) for a, b in ORDERINGS if a in by_name and b in by_name]
    return Results(
        experiment="language",
        title=f"Language: {text_spec(config.dataset).title}",
        summary="; ".join(f"{each.label}: {main[each.name].mean:.4f}" for each in arms) + ".",
        claims=(
            *show.order_claims(pairs, measured, show.unlearnt(arms, data, folder)),
            *show.depth_claims(compared, main),
            *show.position_claims(compared, main),
        ),
        tables=(
            show.sensitivity_table(config, data, arms, main, folder),
            show.ways_table(config, compared, measured),
            *show.authors_tables(by_name, measured),
        ),
        figures=(
            *show.training_figures(config, compared, folder),
            show.position_figure(compared, main, folder),
            show.ways_figure(compared, measured, folder),
        ),
        values={
            how: {name: show.summary(estimate) for name, estimate in estimates.items()}
            for how, estimates in measured.items()
        },
        config=dataclasses.asdict(config),
        environment=environment(),
        seconds=seconds(folder),
    )


def ways(config: Config, arm: TextArm) -> dict[str, dict[str, Any]]:
    """Every measurement of one model at the end of training; "main" is the paper's."""
    if not arm.in_full:
        return {"main": {}}
    return {
        "main": {},
        **{f"variance {v:g}": {"variance": v} for v in config.variances[1:]},
        "validation": {"split": "validation"},
        "whole text": {"edit": "sentence"},
        "other words": {"edit": "word"},
        "renormalised": {"route": "renormalised"},
        **({"authors": {"route": "authors"}} if config.authors else {}),
    }


def _measure(
    config: Config,
    data: TextData,
    arm: TextArm,
    variables: Any,
    split: str = "train",
    **options: Any,
) -> SensitivityEstimate:
    # One key for all: models and ways of measuring share their noise, so differences are paired.
    key = jax.random.key(config.seed + 1)
    return measuring.measure(config, arm, variables, data.measured[split], key=key, **options)
