"""What the formats share: their options, bodies to texts, and which types columns may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

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
MaxBodyBytes = Annotated[int, hr.option("The largest size of a body, in bytes. A larger body is a bad record.", ge=1)]
MAX_BODY_BYTES = 1024 * 1024


class ReadOnlyCodec(hr.Codec):
    """A format that writes nothing."""

    name: ClassVar[str]

    def encoder(self, schema: hr.Schema | None) -> hr.Encoder:
        """Raise PlanError: the format can only be read."""
        raise hr.PlanError(
            f"the format {self.name!r} can only be read",
            plugin=self.name,
            hint="write another format, such as format='json'",
        )


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


def decoded(
    bodies: hr.Bodies,
    frame: pl.DataFrame,
    good: NDArray[np.int64],
    rows: NDArray[np.int64] | None,
    bad: list[hr.BadBody],
    faults: Mapping[int, str],
) -> hr.Decoded:
    """Return what bodies gave. ``rows`` and ``bad`` are those of ``lines_of``; ``good`` and ``faults`` count its texts.

    ``good``: the texts that gave the rows of ``frame``; ``faults``: what is wrong with the others.
    """
    if rows is None and not faults:
        return hr.Decoded(frame)
    places = np.arange(len(bodies), dtype=np.int64) if rows is None else rows
    every = [*bad, *(hr.BadBody(int(places[row]), reason) for row, reason in faults.items())]
    return hr.Decoded(frame, places[good], sorted(every, key=lambda each: each.row))
