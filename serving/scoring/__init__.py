"""Scoring of sentences, and ranking by scores."""
