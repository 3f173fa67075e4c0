"""Correlations of what rules have matched."""
