"""How queries become streams: one module for each clause, the compiler with its table of the kinds of queries, and the script that runs
the statements of a text in their order. This is the highest room: it may import all others, and only modules beside the rooms import it.
"""
