"""What the formats share: bodies to texts, and which types columns may have."""

from __future__ import annotations

import headrace as hr
import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_grok.values import is_supported, type_text


def lines_of(bodies: hr.Bodies, max_body_bytes: int) -> tuple[pl.Series, NDArray[np.int64] | None, list[hr.BadBody]]:
    """Return the texts of bodies, their rows (None: all), and the bodies that are no texts or too large."""
    every = list(bodies)
    if not len(bodies) or int((bodies.ends - bodies.starts).max()) <= max_body_bytes:
        try:
            return pl.Series(every, dtype=pl.Binary).cast(pl.String), None, []
        except pl.exceptions.ComputeError:
            pass  # some body is not UTF-8: each is looked at
    texts: list[str] = []
    rows: list[int] = []
    bad: list[hr.BadBody] = []
    for row, body in enumerate(every):
        if len(body) > max_body_bytes:
            why = f"the body has {len(body)} bytes, more than max_body_bytes = {max_body_bytes}"
            bad.append(hr.BadBody(row, why))
            continue
        try:
            texts.append(body.decode())
            rows.append(row)
        except UnicodeDecodeError as error:
            bad.append(hr.BadBody(row, f"not valid UTF-8 at byte {error.start}: {error.reason}"))
    return pl.Series(texts, dtype=pl.String), np.array(rows, dtype=np.int64), bad


def check_type(plugin: str, name: str, kind: pl.DataType, timestamp_format: str | None, *, is_line: bool) -> None:
    """Raise OptionError for a column whose values texts do not become."""
    if (is_line and kind != pl.String()) or not is_supported(kind):
        raise hr.OptionError(
            f"column {name!r} cannot be {type_text(kind)}",
            plugin=plugin,
            option="schema",
            hint="declare it string, and convert it by an expression",
        )
    if isinstance(kind, pl.Datetime) and timestamp_format is None:
        raise hr.OptionError(
            f"column {name!r} is a timestamp, but its layout is not known",
            plugin=plugin,
            option="timestamp_format",
            hint="such as timestamp_format='%d/%b/%Y:%H:%M:%S %z', or declare the column string",
        )
