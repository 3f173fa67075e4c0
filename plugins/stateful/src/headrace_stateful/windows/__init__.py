"""Aggregates in windows: tumbling, sliding, cumulative and session; early results, late rows, the log of partial results."""
