"""One folder per experiment: its config, the paper's numbers, and run()."""
