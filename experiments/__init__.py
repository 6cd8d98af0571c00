"""The papers' comparisons: one JSON file per table or figure, and the code that runs them."""
