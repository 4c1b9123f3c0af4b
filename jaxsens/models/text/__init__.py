"""Models of texts: padded token ids in, logits out, and one place for noise on the embeddings."""

from jaxsens.models.text.gpt2 import GPT2
from jaxsens.models.text.lstm import LSTM
from jaxsens.models.text.roberta import RoBERTa
from jaxsens.models.text.text_model import TextModel

__all__ = ["GPT2", "LSTM", "RoBERTa", "TextModel"]
