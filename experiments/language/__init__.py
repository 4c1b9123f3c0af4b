"""Language (Figs 7, 8, 16 to 19): is RoBERTa less sensitive to its tokens than an LSTM?

Models are trained from scratch on pairs of texts. Then noise goes on one layer-normed embedding at
a time, the same for every model, and what is counted is how often the prediction changes.

    python -m jaxsens.run --exp language
        generated paraphrases, 6 min on one core, 12 with --seeds 3: RoBERTa 0.069, GPT-2 0.069,
        with ReLU 0.124, LSTM 0.161
    python -m jaxsens.run --exp language --preset small --dataset mrpc --seeds 1 --data-dir DATA
        MRPC, 41 min on one core of an AMD EPYC: GPT-2 0.001, RoBERTa with ReLU 0.007, RoBERTa
        0.016, LSTM 0.045; treated alike, RoBERTa keeps half of the lead that the authors' code
        gives it
    python -m jaxsens.run --exp language --preset small --seeds 1 --data-dir DATA
        20,000 pairs of QQP, 26 min on one core: GPT-2 0.021, RoBERTa with ReLU 0.041, RoBERTa
        0.046, LSTM 0.081; treated alike, again half of the lead is left
    python -m jaxsens.run --exp language --preset small --depths None --no-authors --data-dir DATA
        the same with 3 seeds, 35 min on one core: GPT-2 0.019, RoBERTa with ReLU 0.045, RoBERTa
        0.050, LSTM 0.078; RoBERTa below LSTM at the end, undecided at equal accuracy
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

from jaxsens import SensitivityEstimate
from jaxsens.data.text import text_spec
from jaxsens.reporting.arms import arms
from jaxsens.reporting.papers import SIMPLICITY_BIAS
from jaxsens.reporting.results import Findings, grouped
from jaxsens.reporting.run_folder import RunFolder

from .._common.equal_accuracy import (
    accuracy_figure,
    at_equal_accuracy,
    equally_accurate_claim,
)
from .._common.seeds import by_seed, seeds_table, with_seed
from .claims import depth_claims, order_claims, orderings, position_claims, unlearnt
from .config import Config
from .figures import position_figure, training_figures, ways_figure
from .loading import Corpus, encode, load
from .measuring import measure_every_way, summary
from .models import model_specs
from .tables import authors_tables, sensitivity_table, title_of, ways_table
from .token_maps import write_token_maps
from .training import train_model

__all__ = ["COST", "PAPERS", "PRESETS", "Config", "load", "run"]

_SEEDS_NOTE = "Measured as in the table above, on the same texts."

PRESETS = {
    "quick": Config(depths=(1,)),
    "small": Config(dataset="qqp", depths=(1, 4), num_seeds=3),
    "paper": Config(dataset="qqp", depths=(8, 12), num_seeds=5),
}

PAPERS = (SIMPLICITY_BIAS,)

COST = {
    "quick": "generated paraphrases, offline, 6 CPU minutes",
    "small": "QQP (or --dataset mrpc), reduced models, 3 seeds of 26 (41) minutes on one core each",
    "paper": "QQP, 20 epochs, the paper's models and depths: for a GPU or TPU",
}


def run(config: Config, corpus: Corpus, folder: RunFolder) -> Findings:
    """Trains, measures, compares."""
    data = encode(config, corpus, folder)
    specs = model_specs(config, data.vocab_size)
    measured: dict[str, dict[str, SensitivityEstimate]] = {}
    full = [spec for spec in specs if spec.in_full]
    compared = [spec for spec in specs if spec.name != "lstm-frozen"]
    others = [with_seed(spec, i) for i in range(1, config.num_seeds) for spec in compared]
    for spec in arms(folder, [*specs, *others]):
        variables = train_model(config, data, spec, folder).variables
        for way, found in measure_every_way(config, data, spec, folder, variables).items():
            measured.setdefault(way, {})[spec.name] = found
    main = measured["main"]
    by_name = {spec.name: spec for spec in specs}
    of_seeds = {way: by_seed(full, config.num_seeds, found) for way, found in measured.items()}
    of_depths = by_seed(compared, config.num_seeds, main)
    there = at_equal_accuracy(full, config.num_seeds, folder, config.until_accuracy)
    write_token_maps(config, data, compared, main, folder)
    return Findings(
        title=f"Language: {text_spec(config.dataset).title}",
        summary="; ".join(f"{spec.label}: {main[spec.name].mean:.4f}" for spec in specs) + ".",
        claims=(
            *grouped(
                "Which model is less sensitive",
                order_claims(by_name, of_seeds, unlearnt(specs, data, folder)),
            ),
            *grouped(
                "At equal training accuracy",
                (equally_accurate_claim(*models, there) for models in orderings(by_name)),
            ),
            *grouped("Depth", depth_claims(compared, of_depths)),
            *grouped("Place in the text", position_claims(compared, of_depths)),
        ),
        tables=(
            sensitivity_table(config, data, specs, main, folder),
            *(
                [seeds_table(title_of(config), compared, of_depths, folder, _SEEDS_NOTE)]
                if others
                else []
            ),
            ways_table(config, compared, measured),
            *authors_tables(by_name, measured),
        ),
        figures=(
            *training_figures(config, compared, folder),
            accuracy_figure(full, config.num_seeds, there, folder),
            position_figure(compared, main, folder),
            ways_figure(compared, measured, folder),
        ),
        values={
            way: {name: summary(estimate) for name, estimate in estimates.items()}
            for way, estimates in measured.items()
        },
    )
