"""The command line: experiments by name, flags from their configs, the bounds of every flag."""
