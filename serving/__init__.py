"""SavedModels that take text, and a client for them."""
