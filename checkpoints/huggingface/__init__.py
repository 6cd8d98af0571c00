"""Weights in Hugging Face's files: ConvBERT, ELECTRA and BERT, both directions, without torch."""

from checkpoints.huggingface.reading import read
from checkpoints.huggingface.writing import write

__all__ = ["read", "write"]
