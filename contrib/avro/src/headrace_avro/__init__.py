"""Avro for headrace: records to columns and back."""

__version__ = "0.1.0"
