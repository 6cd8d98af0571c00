"""Weights from elsewhere, both directions: original TensorFlow 1 files, Hugging Face files."""

# Modules with read(path, options) -> Conversion and write(conversion, folder) -> notes; imported
# when asked for, as one of them needs safetensors and both need TensorFlow.
FORMATS = {"tf1": "checkpoints.tf1_convert", "huggingface": "checkpoints.huggingface"}
