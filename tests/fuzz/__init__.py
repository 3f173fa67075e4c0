"""Damaged input in bulk."""
