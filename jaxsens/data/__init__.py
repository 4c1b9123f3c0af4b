"""Datasets as NumPy arrays and texts.

`x, y = jaxsens.data.load("mnist", "train")`, `texts = jaxsens.data.load_text("mrpc", "train")`.
"""

from jaxsens.data.dataset import DatasetSpec
from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError
from jaxsens.data.registry import NAMES, load, spec
from jaxsens.data.text import TEXT_NAMES, TEXT_SPLITS, Texts, TextSpec, load_text, text_spec

__all__ = [
    "NAMES",
    "TEXT_NAMES",
    "TEXT_SPLITS",
    "CorruptDataError",
    "DatasetNotFoundError",
    "DatasetSpec",
    "TextSpec",
    "Texts",
    "load",
    "load_text",
    "spec",
    "text_spec",
]
