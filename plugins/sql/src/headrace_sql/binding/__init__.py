"""What names mean: columns, tables, types, functions, constants, time zones, and expressions of SQL as expressions of
headrace-columnar.

Imports ``operators`` and ``reading``. It does not know how queries become streams.
"""
