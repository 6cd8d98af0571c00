"""Conversion of text to model inputs and back, in TensorFlow: eagerly and in graphs."""
