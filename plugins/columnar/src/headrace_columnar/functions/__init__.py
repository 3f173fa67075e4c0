"""The SQL functions, by subject. Each module declares its functions in the table of ``headrace_columnar.registry``."""
