"""What a text says: the dialects, the parser of Flink's statements and its syntax nodes, hints behind tables, and the options of SET.
Its results are syntax trees; what their names mean is not known here. It may import ``operators``; ``binding`` and ``compiling``
may import it.
"""
