"""Utilities that all packages share: errors, files and paths, settings, plug-ins."""
