"""Grok patterns for headrace: log lines to columns, by patterns with names."""

__version__ = "0.1.0"
