"""Columns that rows have beside their own while MATCH_RECOGNIZE holds them."""

from __future__ import annotations

NEVER = -(2**63)
#: The order of arrival, the time in microseconds, and the row's number in its key.
SEQUENCE, TIME, NUMBER = "__mr_seq", "__mr_time", "__mr_number"
