"""Weights of XLNet from and to the original TensorFlow 1 code and Hugging Face.

A module for each format, with `recognizes(path, options)`, `read` and `write` as of
`checkpoints.FORMATS`.
"""

FORMATS = {"tf1": "checkpoints.xlnet.tf1", "huggingface": "checkpoints.xlnet.huggingface"}
