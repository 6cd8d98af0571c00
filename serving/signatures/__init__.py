"""What a served network can be asked: signatures of SavedModels, by kind of task."""
