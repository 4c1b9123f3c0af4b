"""The command line: experiments by name, flags and their bounds, signals, failures."""
