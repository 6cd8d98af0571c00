"""Training of any objective: loop, optimizer, distribution, checkpoints. Knows no model."""
