"""What is learned from raw text: objectives, masking, their configuration."""
