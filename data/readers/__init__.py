"""Readers of corpora; `data.corpus.open_corpus` chooses among them."""
