"""What the formats share: options, the types that columns may have, and how results of lines become results of
bodies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import headrace as hr
import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_grok.values import is_supported, type_text

#: Options that all formats have.
LineColumn = Annotated[str | None, hr.option("A column for the whole body. Default: none.")]
TimestampFormat = Annotated[
    str | None, hr.option("The layout of columns that are timestamps, in the format codes of strftime.")
]
MAX_BODY_BYTES = 1024 * 1024


def check_type(plugin: str, name: str, kind: pl.DataType, timestamp_format: str | None, *, is_line: bool) -> None:
    """Raise OptionError for a column to whose type texts cannot be converted."""
    if (is_line and kind != pl.String()) or not is_supported(kind):
        raise hr.OptionError(
            f"column {name!r} cannot be {type_text(kind)}",
            plugin=plugin,
            option="schema",
            hint="declare it string, and convert it by an expression",
        )
    if isinstance(kind, pl.Datetime) and timestamp_format is None:
        raise hr.OptionError(
            f"column {name!r} is a timestamp, but no option says how its text is written",
            plugin=plugin,
            option="timestamp_format",
            hint="such as timestamp_format='%d/%b/%Y:%H:%M:%S %z', or declare the column string",
        )


def decoded(
    bodies: hr.Bodies,
    frame: pl.DataFrame,
    good: NDArray[np.int64],
    rows: NDArray[np.int64] | None,
    bad: list[hr.BadBody],
    faults: Mapping[int, str],
) -> hr.Decoded:
    """Return the result for bodies. ``rows`` and ``bad`` come from ``texts_of``; ``good`` and ``faults`` hold numbers
    of its texts.

    ``good``: the texts that made the rows of ``frame``; ``faults``: what is wrong with others. A text that is in neither
    makes no row.
    """
    if rows is None and not faults and len(good) == len(bodies):
        return hr.Decoded(frame)
    places = np.arange(len(bodies), dtype=np.int64) if rows is None else rows
    every = [*bad, *(hr.BadBody(int(places[row]), reason) for row, reason in faults.items())]
    return hr.Decoded(frame, places[good], sorted(every, key=lambda each: each.row))
