"""Flink and Blink SQL: texts in, the same jobs as the DSL builds out."""

from headrace_sql.binding.session import SqlSession

__version__ = "0.1.0"
__all__ = ["SqlSession", "__version__"]
