"""The log of changes by logical replication: the slot, its stream, and the changes of one table as columns.

Imports go downwards: ``following`` uses ``decoding`` and ``stream``; these use ``places``.
"""
