"""Scores of sentences, and what is ranked by them."""
