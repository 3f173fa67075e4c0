"""Logs of well-known programs for headrace: lines to typed columns by the name of a preset."""

__version__ = "0.1.0"
