"""Word sensitivity: how much can the worst change of one word do to random features and attention?

Bombari and Mondelli, *Towards Understanding the Word Sensitivity of Attention Layers* (arXiv
2402.02969). Random features relu(V X) notice one of n words as little as 1/√n; random attention
notices it fully, whatever n, because a softmax can be saturated. So a linear model of attention can
learn that one word turns a text into its opposite, and one of random features cannot.

    python -m jaxsens.run --exp word-sensitivity
        210 CPU seconds and 1.8 GB at the peak: at d = 192
        and n = 160 softmax attention 2.69, ReLU attention 0.47, random features 0.086
    python -m jaxsens.run --exp word-sensitivity --preset small
        48 CPU minutes, an hour by the clock beside other work, 1.8 GB: at d = 768 and n = 250
        softmax attention 4.4, ReLU attention 0.83, random features 0.068
    python -m jaxsens.run --exp word-sensitivity --reuse RUN …
        also the models of runs of `language` and `vision`, untrained and trained
    python -m jaxsens.run --exp word-sensitivity --embeddings DIR --data-dir DATA
        also IMDB's reviews in BERT's embeddings: DIR has model.safetensors and vocab.txt of
        bert-base-uncased

All maps are measured on one grid of widths d and numbers of words n, by exact algorithms that need
no matrix of D × D weights, D = nd (except for deep random features, whose layers are such).
"""

from jaxsens.reporting.papers import WORD_SENSITIVITY
from jaxsens.reporting.results import Findings, grouped
from jaxsens.reporting.run_folder import RunFolder

from . import context_claims, figures, tables, trained, trained_claims
from .claims import sensitivity_claims
from .config import Config
from .context import measure_contexts
from .loading import Loaded, load
from .measuring import measure_all_words, measure_grid, measure_stuck

__all__ = ["COST", "PAPERS", "PRESETS", "Config", "load", "run"]

PRESETS = {
    "quick": Config(),
    "small": Config(
        d=(16, 192, 384, 768),
        n=(10, 20, 50, 100, 150, 200, 250),
        dense_limit=4_000,
        all_words_n=(10, 20, 50),
        all_words_limit=800,
        stuck_n=50,
        context_d=768,
        context_n=(40,),
        context_train=(1_100,),
    ),
    "paper": Config(
        d=(192, 384, 768),
        n=(10, 20, 50, 80, 100, 150, 200, 250),
        num_steps=300,
        num_seeds=10,
        # DRF of 8 layers at n = 80, d = 768, as in the paper: 120 GB of weights.
        dense_limit=80 * 768,
        all_words_n=(10, 20, 50, 100),
        all_words_limit=10_000,
        stuck_n=50,
        context_d=768,
        context_n=(40, 120),
        context_train=(1_100, 1_200, 1_300),
        context_dense=(2, 4, 8),
        context_dense_limit=80 * 768,
    ),
}

PAPERS = (WORD_SENSITIVITY,)

COST = {
    "quick": "d up to 192, n up to 160, contexts of 16 words; 3 to 7 CPU minutes",
    "small": "the paper's sizes, d up to 768 and n up to 250, on a CPU; 48 CPU minutes, 1.8 GB",
    "paper": "the same with deep random features at width D: 240 GB of memory, for a GPU or TPU",
}


def run(config: Config, data: Loaded, folder: RunFolder) -> Findings:
    """Measures the random maps, then the models of other runs."""
    models = trained.measure_models(config, data.runs, folder)
    pools = trained.pools(data.runs, folder)
    if data.reviews is not None:
        pools.append(data.reviews)
    grid = measure_grid(config, pools, folder)
    words = measure_all_words(config, folder)
    stuck = measure_stuck(config, pools, folder)
    contexts = measure_contexts(config, pools, folder)
    return Findings(
        title="Word sensitivity of random features and attention",
        summary=tables.summary(grid),
        claims=(
            *grouped("Word sensitivity", sensitivity_claims(grid)),
            *grouped("Generalisation on context", context_claims.context_claims(contexts)),
            *grouped("Models of other runs", trained_claims.trained_claims(models)),
        ),
        tables=(
            tables.grid_table(config, grid),
            tables.random_table(grid),
            *([tables.all_words_table(words)] if words else []),
            tables.stuck_table(config, stuck),
            tables.context_table(contexts),
            *([trained_claims.trained_table(config, models)] if models else []),
        ),
        figures=(
            figures.grid_figure(grid, folder),
            figures.texts_figure(grid, folder),
            figures.stuck_figure(stuck, folder),
            figures.context_figure(contexts, folder),
            *([trained_claims.trained_figure(models, folder)] if models else []),
        ),
        values={
            "first_word": grid,
            "all_words": words,
            "stuck": stuck,
            "contexts": contexts,
            "models": models,
        },
    )
