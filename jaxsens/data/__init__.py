"""Datasets as NumPy arrays: `x, y = jaxsens.data.load("mnist", "train")`."""

from jaxsens.data.dataset import DatasetSpec
from jaxsens.data.errors import CorruptDataError, DatasetNotFoundError
from jaxsens.data.registry import NAMES, load, spec

__all__ = ["NAMES", "CorruptDataError", "DatasetNotFoundError", "DatasetSpec", "load", "spec"]
