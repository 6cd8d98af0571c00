"""One file per corpus format; `data.corpus.open_corpus` chooses among them."""
