"""Fault tests: processes killed at random moments while they work on real input. Long ones are marked ``slow``."""
