"""Labelled texts and pairs of texts: `load_text("mrpc", "train")`."""

from jaxsens.data.text.load import load_text
from jaxsens.data.text.spec import TEXT_NAMES, TEXT_SPLITS, TextSpec, register_text, text_spec
from jaxsens.data.text.texts import Texts

__all__ = [
    "TEXT_NAMES",
    "TEXT_SPLITS",
    "TextSpec",
    "Texts",
    "load_text",
    "register_text",
    "text_spec",
]
