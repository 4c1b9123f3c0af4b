"""One family of operations per file: what an edit makes of each operation's result."""
