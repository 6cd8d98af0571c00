"""Pre-training on raw text: objectives, masking, and their configuration."""
