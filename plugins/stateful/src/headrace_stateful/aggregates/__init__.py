"""Verbs over the rows of a key without windows: aggregates and their functions, reduce, distinct, Top-N, functions with state."""
