"""The commands that this package adds to ``headrace``: most of them ask a server."""
