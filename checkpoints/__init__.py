"""Conversion from and to original TensorFlow 1 files and Hugging Face files."""

FORMATS = ("huggingface", "tf1")
