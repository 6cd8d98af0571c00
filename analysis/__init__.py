"""What the models cost, counted: parameters and floating-point operations."""
