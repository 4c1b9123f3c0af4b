"""One file an experiment: its config, the paper's numbers, and run()."""
