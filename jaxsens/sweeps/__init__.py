"""Sweeps: lists of runs, run one after the other or one by its index, and one page over them."""
