"""Datasets by name, as NumPy arrays or texts.

    x, y = jaxsens.data.load("mnist", "train")               images: float32 in [-1, 1], and labels
    texts = jaxsens.data.load_text("mrpc", "validation")     texts or pairs of texts, and labels

`load` is for images: it scales pixels, and its splits are "train" and "test". `load_text` is for
texts: it returns strings, which `jaxsens.text` makes token ids of, and its splits are "train" and
"validation", because GLUE keeps the labels of its test splits to itself. `spec` and `text_spec` say
what is known of a dataset before any file is opened; `register` and `register_text` add one.

Both read the files that they find, even if these are only a part of the dataset: compare the number
of examples with `num_examples` of the spec where that matters.
"""

from jaxsens.data.dataset import DatasetSpec, LabelledImages
from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError
from jaxsens.data.registry import NAMES, load, register, spec
from jaxsens.data.text import (
    TEXT_NAMES,
    TEXT_SPLITS,
    Texts,
    TextSpec,
    load_text,
    register_text,
    text_spec,
)

__all__ = [
    "NAMES",
    "TEXT_NAMES",
    "TEXT_SPLITS",
    "CorruptDataError",
    "DatasetNotFoundError",
    "DatasetSpec",
    "LabelledImages",
    "TextSpec",
    "Texts",
    "load",
    "load_text",
    "register",
    "register_text",
    "spec",
    "text_spec",
]
