"""Coloured tokens of single texts for the report: which words each model is sensitive to."""

from collections.abc import Sequence

from jaxsens.reporting.example_maps import text_maps, write_maps
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.text.tokenization import token_texts

from .._common.claims import Estimates
from .config import Config
from .loading import TextData
from .models import TextModelSpec


def write_token_maps(
    config: Config,
    data: TextData,
    specs: Sequence[TextModelSpec],
    main: Estimates,
    folder: RunFolder,
) -> None:
    """Keeps some measured training texts, with the sensitivity of each token, in the folder."""
    texts = data.measured["train"]
    maps = text_maps(
        "Which words the models hang on",
        [token_texts(data.tokenizer, sequence) for sequence in texts.sequences],
        {spec.label: main[spec.name] for spec in specs},
        labels=[f"text {i}, class {label}" for i, label in enumerate(texts.labels)],
        note=f"Noise of variance {config.variances[0]:g} on the layer-normed embedding of one "
        f"token at a time, {config.num_samples} draws each: in which share of them the prediction "
        "changes.",
    )
    write_maps(folder, maps)
