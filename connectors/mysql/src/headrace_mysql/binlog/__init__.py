"""The binary log of MySQL and MariaDB: positions in it, its stream from the server, and the rows of one table as columns.

Imports go downwards: ``following`` uses ``scanning`` and ``stream``; these use ``images``, ``values``, ``layout``, ``positions``.
"""
