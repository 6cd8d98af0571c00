"""Models as SavedModels that take text and answer, and a client that asks them."""
