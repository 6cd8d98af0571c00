"""Extractive question answering as SQuAD defines it."""
