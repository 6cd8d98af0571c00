"""What is put on top of a backbone: heads that pre-train it, and heads that learn tasks."""
