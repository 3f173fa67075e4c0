"""Operators of headrace that remember: windows, running aggregates, joins, distinct, top-N, and functions with state."""
