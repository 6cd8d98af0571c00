"""Weights from elsewhere: files of the original TensorFlow 1 code."""
