"""Joins of two keyed streams: without bound, within a time bound, in windows."""
