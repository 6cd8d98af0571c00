"""Scores of sentences by language models."""
