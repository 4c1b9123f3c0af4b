"""Tables of the experiment `language`."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np

import jaxsens
from jaxsens import SensitivityEstimate
from jaxsens.core.intervals import ratio_of_means, student_interval
from jaxsens.data.text import text_spec
from jaxsens.reporting.records import records_of
from jaxsens.reporting.results import Table
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.text.buckets import into_buckets, padding_share

from .._common.claims import Estimates
from .claims import constant_accuracy, validation_accuracy
from .config import Config
from .loading import TextData
from .measuring import Measured, in_all_ways
from .models import TextModelSpec

_AUTHORS_NOTE = " authors: as in their code, where RoBERTa's noisy embeddings are embedded again."


def sensitivity_table(
    config: Config,
    data: TextData,
    specs: Sequence[TextModelSpec],
    main: Estimates,
    folder: RunFolder,
) -> Table:
    """The models at the end of training, beside the paper's numbers."""
    rows = []
    for spec in specs:
        estimate, record = main[spec.name], records_of(folder, spec.name)[-1]
        low, high = estimate.ci()
        pooled, pooled_low, pooled_high = estimate.pooled()
        accuracy, lowest, highest = validation_accuracy(spec, data, folder)
        rows.append(
            (
                spec.label,
                f"{num_parameters(spec):,}",
                spec.paper,
                f"{estimate.mean:.4f}",
                f"{low:.4f} – {high:.4f}",
                f"{pooled:.4f} ({pooled_low:.4f} – {pooled_high:.4f})",
                f"{record['train_accuracy']:.3f}",
                f"{accuracy:.3f} ({lowest:.3f} – {highest:.3f})",
            )
        )
    estimate = main[specs[0].name]
    tokens = np.concatenate([b.lengths for b in data.measured["train"].buckets])
    padding = padding_share(into_buckets(data.train.sequences, data.train.training_lengths))
    return Table(
        title=title_of(config),
        columns=(
            *("model", "parameters", "paper", "measured", "95 % interval", "token-weighted"),
            *("train acc.", "validation acc."),
        ),
        rows=tuple(rows),
        note=f"Noise of variance {config.variances[0]:g} on one layer-normed embedding; "
        f"n={estimate.num_examples} training texts of {tokens.mean():.1f} tokens on average, "
        f"S={config.num_samples} draws per token. Measured: mean over texts of the mean over "
        "tokens (the definition); token-weighted: over all tokens, as the authors report. "
        f"A constant predictor has validation accuracy {constant_accuracy(data.validation):.3f}; "
        "the sensitivity of a model that is no better says little. "
        f"Vocabulary {data.vocab_size:,}; padding in training {padding:.0%} of all places.",
    )


def title_of(config: Config) -> str:
    """Of tables of the models at the end of training."""
    return f"Sensitivity after {config.epochs} epochs on {text_spec(config.dataset).title}"


def num_parameters(spec: TextModelSpec) -> int:
    """Numbers that a model learns."""
    tokens = jax.ShapeDtypeStruct((1, 8), np.int32)
    shapes = jax.eval_shape(spec.model.init, jax.random.key(0), tokens)
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def ways_table(config: Config, specs: Sequence[TextModelSpec], measured: Measured) -> Table:
    """Other noise, other texts, other edits."""
    rows = []
    for spec in in_all_ways(specs, measured):
        estimates = (found[spec.name] for found in measured.values())
        rows.append((spec.label, *(_with_interval(estimate) for estimate in estimates)))
    return Table(
        title="Other noise, other texts, other edits",
        columns=("model", *measured),
        rows=tuple(rows),
        note=f"main: as above. validation: on texts not trained on. whole text: noise of variance "
        f"{config.variances[0]:g} on all embeddings at once. other words: one token, never a "
        "special one, replaced by a random one. renormalised: noisy embeddings layer-normed again, "
        "for all models alike." + _AUTHORS_NOTE * ("authors" in measured),
    )


def _with_interval(estimate: SensitivityEstimate) -> str:
    low, high = estimate.ci()
    return f"{estimate.mean:.4f} ({low:.4f} – {high:.4f})"


def authors_tables(by_name: Mapping[str, TextModelSpec], measured: Measured) -> list[Table]:
    """How much of the gap between LSTM and RoBERTa comes from treating them differently."""
    if not {"lstm", "lstm-frozen", "roberta-softmax"} <= by_name.keys():
        return []
    lstm, frozen = measured["main"]["lstm"], measured["main"]["lstm-frozen"]
    roberta, twice = (measured[way]["roberta-softmax"] for way in ("main", "authors"))
    asymmetric = jaxsens.compare(frozen, twice)
    rows = []
    for label, of_lstm, of_roberta in (
        ("authors: LSTM frozen, RoBERTa embedded twice", frozen, twice),
        ("LSTM trained, RoBERTa embedded twice", lstm, twice),
        ("LSTM frozen, RoBERTa embedded once", frozen, roberta),
        ("the same for both", lstm, roberta),
        (
            "the same for both, noise layer-normed",
            measured["renormalised"]["lstm"],
            measured["renormalised"]["roberta-softmax"],
        ),
    ):
        gap = jaxsens.compare(of_lstm, of_roberta)
        mean, low, high = gap.interval()
        share = _share(gap.per_example, asymmetric.per_example)
        cells = (f"{of_lstm.mean:.4f}", f"{of_roberta.mean:.4f}", f"{mean:.4f}")
        rows.append((label, *cells, f"{low:.4f} – {high:.4f}", share))
    return [
        Table(
            title="How much of the gap between LSTM and RoBERTa is the authors' asymmetry?",
            columns=("treatment", "LSTM", "RoBERTa", "gap", "95 % interval", "of the authors' gap"),
            rows=tuple(rows),
            note="The last column divides by the gap in the first row: what is missing to 1 comes "
            "from treating the models differently; it is empty if that gap is not above 0. "
            "Intervals are paired by text, those of the last column Fieller's.",
        )
    ]


def _share(part: np.ndarray, whole: np.ndarray) -> str:
    """mean(part) / mean(whole) with its 95 % interval over the texts that both share."""
    if student_interval(whole).low <= 0:
        return "–"
    share, low, high = ratio_of_means(part, whole)
    return f"{share:.2f} ({low:.2f} – {high:.2f})"
