"""What all rooms share: errors, files and paths, settings, plug-ins."""
