"""JSON Schema for headrace: bodies that conform to a schema, and columns of its types."""

__version__ = "0.1.0"
