"""The print sink: rows on standard output or standard error, as JSON lines or as a table."""

__version__ = "0.1.0"
