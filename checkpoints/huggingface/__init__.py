"""Conversion from and to Hugging Face's files of ConvBERT, ELECTRA and BERT, without torch."""

from convbert.checkpoints.huggingface.reading import read
from convbert.checkpoints.huggingface.task_heads import read_fine_tuned, write_fine_tuned
from convbert.checkpoints.huggingface.writing import write

__all__ = ["read", "read_fine_tuned", "write", "write_fine_tuned"]
