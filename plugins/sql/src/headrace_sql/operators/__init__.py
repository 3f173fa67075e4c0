"""What runs: operators that the clauses of SQL need beside those of headrace-stateful, and sources and sinks of this package.

The lowest room. Nothing here knows of SQL's syntax or of a query; every other room may import it.
"""
