"""Files of labelled examples."""
