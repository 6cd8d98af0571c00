"""Heads on top of a backbone, for pre-training and for tasks."""
