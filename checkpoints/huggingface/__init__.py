"""Weights in Hugging Face's files: ConvBERT, ELECTRA and BERT, both directions, without torch."""

from checkpoints.huggingface.reading import read
from checkpoints.huggingface.task_heads import read_fine_tuned, write_fine_tuned
from checkpoints.huggingface.writing import write

__all__ = ["read", "read_fine_tuned", "write", "write_fine_tuned"]
