"""Columns that rows have beside their own while MATCH_RECOGNIZE holds them."""

from __future__ import annotations

NEVER = -(2**63)
#: The order of arrival, the time in microseconds, and the watermark that the row came with.
SEQUENCE, TIME, MARK = "__mr_seq", "__mr_time", "__mr_mark"
