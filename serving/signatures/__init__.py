"""Signatures of SavedModels: of pre-trained models, and by kind of task."""
