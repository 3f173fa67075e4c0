"""Flink and Blink SQL: texts in, the same jobs as the DSL builds out."""

__version__ = "0.1.0"
