"""What names mean: columns, tables, types, functions, constants, time zones and connectors; sessions; the translation of expressions; and
the context that clauses are given. Queries do not become streams here. It may import ``operators`` and ``reading``; ``compiling``
may import it.
"""
