"""Layers that the models share: convolutions, norms, attention with several heads."""
