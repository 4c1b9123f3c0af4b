"""Datasets that are generated and need no file."""
