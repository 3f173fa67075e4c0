"""Whole SQL texts with known results."""
