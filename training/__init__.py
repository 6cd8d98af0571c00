"""How anything is trained: loop, optimizer, distribution, checkpoints. Knows no model."""
