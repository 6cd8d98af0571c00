"""From text to the sequences that models see and back, in TensorFlow: eagerly and in graphs."""
