"""The plan of a job: the graph of nodes that all ways to write a job make and all backends run, and what is computed from it: stages,
definitions of state and outputs, its explanation.

It imports the rooms below it: ``foundation``, ``flow`` and ``interfaces``. It runs nothing.
"""
