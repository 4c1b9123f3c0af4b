"""Image datasets, one a file: what their official files look like, and how they are read."""
