"""What connectors of databases have in common, for those of this repository and for others.

``table_sink`` writes rows and positions into a table, in one transaction; ``offsets_table`` is where the positions are. ``change_reader``
reads a table and then its log. ``table_options`` reads what SQL texts say of such tables. Each is a base class or a function to which a
connector gives what is special to its server; ``headrace_mysql`` and ``headrace_postgres`` are the examples.
"""
