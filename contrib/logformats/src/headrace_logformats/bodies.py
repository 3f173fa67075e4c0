"""Shared functions of the formats: they convert bodies to lines and texts, and report bad bodies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import headrace as hr
import numpy as np
import polars as pl
from headrace.interfaces.format_parts import MaxBodyBytes, ReadOnlyCodec, not_utf8, too_large
from numpy.typing import NDArray

MAX_BODY_BYTES = 16 * 1024 * 1024
_SHOWN_MAX = 60
_NEWLINE = 10


class LogSettings(hr.Settings, frozen=True, kw_only=True):
    """Options of the formats of logs."""

    max_body_bytes: MaxBodyBytes = MAX_BODY_BYTES


class LogCodec(ReadOnlyCodec):
    """Base of the formats, which can only be read."""

    Settings: ClassVar[type[hr.Settings]] = LogSettings


def fitting(bodies: hr.Bodies, max_body_bytes: int) -> tuple[hr.Bodies, NDArray[np.int64] | None, dict[int, str]]:
    """Return the bodies that are not too large, their rows (None: all), and the reasons of the others, by row."""
    sizes = bodies.ends - bodies.starts
    if not len(bodies) or int(sizes.max()) <= max_body_bytes:
        return bodies, None, {}
    rows = np.flatnonzero(sizes <= max_body_bytes).astype(np.int64)
    bad = {int(row): too_large(int(sizes[row]), max_body_bytes) for row in np.flatnonzero(sizes > max_body_bytes)}
    return bodies.take(rows), rows, bad


def lines_of(bodies: hr.Bodies) -> tuple[hr.Bodies, NDArray[np.int64] | None]:
    """Return the lines of bodies, and for each line the row of its body (None: each body is one line)."""
    data = bodies.joined()
    newlines = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _NEWLINE).astype(np.int64)
    if len(newlines) == len(bodies) - 1 or not len(bodies):
        return bodies, None
    starts = np.concatenate((np.zeros(1, dtype=np.int64), newlines + 1))
    ends = np.append(newlines, len(data))
    lengths = bodies.ends - bodies.starts + 1
    body_starts = np.cumsum(lengths) - lengths
    rows = np.searchsorted(body_starts, starts, side="right") - 1
    return hr.Bodies(data, starts, ends, newline_separated=True), rows.astype(np.int64)


def texts_of(bodies: Iterable[bytes]) -> tuple[pl.Series, dict[int, str]]:
    """Return bodies as texts, NULL for a body that is not UTF-8, and the reasons of those, by row."""
    every = list(bodies)
    try:
        return pl.Series(every, dtype=pl.Binary).cast(pl.String), {}
    except pl.exceptions.ComputeError:
        pass  # at least one body is not UTF-8, so each is checked
    texts: list[str | None] = []
    bad: dict[int, str] = {}
    for row, body in enumerate(every):
        try:
            texts.append(body.decode())
        except UnicodeDecodeError as error:
            texts.append(None)
            bad[row] = not_utf8(error)
    return pl.Series(texts, dtype=pl.String), bad


def shown(text: str) -> str:
    """Return a text in double quotes as reasons show it, cut when it is long."""
    return f'"{text}"' if len(text) <= _SHOWN_MAX else f'"{text[:_SHOWN_MAX]}…"'


def decoded(
    frame: pl.DataFrame,
    made_from: NDArray[np.int64],
    faults: Mapping[int, str],
    rows: NDArray[np.int64] | None,
    too_large: Mapping[int, str],
    count: int,
) -> hr.Decoded:
    """Return the result of ``count`` bodies. ``rows`` and ``too_large`` are results of ``fitting``; the other arguments
    refer to its bodies.

    ``made_from``: the body of each row of ``frame``. ``faults``: the reasons of bad bodies.
    """
    if not faults and not too_large and len(made_from) == count and np.array_equal(made_from, np.arange(count)):
        return hr.Decoded(frame)
    places = np.arange(count, dtype=np.int64) if rows is None else rows
    every = {**too_large, **{int(places[row]): reason for row, reason in faults.items()}}
    return hr.Decoded(frame, places[made_from], [hr.BadBody(row, every[row]) for row in sorted(every)])
