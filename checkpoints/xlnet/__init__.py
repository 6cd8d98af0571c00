"""Weights of XLNet from and to the original TensorFlow 1 code and Hugging Face."""
