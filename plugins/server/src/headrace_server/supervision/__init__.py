"""Keeps jobs as they are wanted: starts runners, watches them, restarts them, rolls versions out and back."""
