"""What a text says: the dialects, the parser of Flink's statements, its syntax nodes, the options of SET.

Imports nothing of this package but ``operators``. Its results are syntax trees; what names in them mean is not known here.
"""
