"""Signatures of SavedModels, for pre-trained models and by kind of task."""
