"""Texts as token ids: special ids, buckets of similar length, and tokenisation.

`jaxsens.text.tokenization` and `jaxsens.text.bert` stand apart: they load libraries that models do
not need.
"""

from jaxsens.text.buckets import LENGTHS, Bucket, into_buckets, padding_share
from jaxsens.text.special_ids import CLS_ID, PAD_ID, SEP_ID, UNK_ID

__all__ = [
    "CLS_ID",
    "LENGTHS",
    "PAD_ID",
    "SEP_ID",
    "UNK_ID",
    "Bucket",
    "into_buckets",
    "padding_share",
]
