"""Lengths of time as Flink's configuration writes them."""

from __future__ import annotations

import re

from headrace.foundation.errors import OptionError

_UNITS = {"ms": 1_000, "s": 1_000_000, "sec": 1_000_000, "second": 1_000_000, "min": 60_000_000, "minute": 60_000_000,
          "h": 3_600_000_000, "hour": 3_600_000_000, "d": 86_400_000_000, "day": 86_400_000_000, "": 1_000}  # fmt: skip


def duration_us(text: str, option: str) -> int:
    """Return a length of time of Flink's configuration (``30 s``, ``0 ms``, ``1 min``) in microseconds."""
    found = re.fullmatch(r"\s*(\d+)\s*([a-zA-Z]*)\s*", text)
    unit = found[2].lower() if found else "?"
    unit = unit if unit in _UNITS else unit.removesuffix("s")
    if found is None or unit not in _UNITS:
        raise OptionError(f"{text!r} is not a length of time", option=option, hint="for example '30 s'")
    return int(found[1]) * _UNITS[unit]
