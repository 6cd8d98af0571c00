"""Weights from elsewhere, both directions: original TensorFlow 1 files, Hugging Face files."""

FORMATS = ("huggingface", "tf1")
