"""How jobs are written in Python: streams and their verbs, keyed streams, jobs and namespaces.

A neighbour of ``runtime``, above ``plan``. What a job needs of the runtime, it imports when it is started.
"""
