"""The command line's parts: discovery, flags, signals."""
