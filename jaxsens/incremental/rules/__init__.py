"""One family of operations a file: what an edit makes of each operation's result."""
