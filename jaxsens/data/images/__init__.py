"""Image datasets, one per file: what their official files look like, and how they are read."""
