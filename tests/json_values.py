"""Values of rows as JSON has them: what a receiver of JSON must see of each."""

from __future__ import annotations

import base64
import datetime as dt
from typing import Any

import polars as pl


def as_json_value(value: Any) -> Any:
    """Return a value as a row in JSON has it."""
    if isinstance(value, dt.datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%f").rjust(26, "0") + ("Z" if value.tzinfo else "")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, dt.time):
        return value.isoformat("microseconds")
    if isinstance(value, dt.timedelta):
        return pl.Series([value]).dt.to_string("iso").item()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value
