"""What is checked of bodies before they are parsed: size, text encoding, depth of nesting."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np
import polars as pl

from headrace.flow.messages import Bodies
from headrace.interfaces.codec import BadBody, Decoded

if TYPE_CHECKING:
    from numpy.typing import NDArray

Argument = TypeVar("Argument")
Result = TypeVar("Result")

#: Levels of arrays and objects within each other that a JSON body may have. Parsers recurse, so there must be a limit;
#: this one is well within what Python's default recursion limit leaves to a thread that has just begun.
NESTING_MAX = 512
#: What msgspec raises for a body: DecodeError and its subclass ValidationError, UnicodeDecodeError, or for numbers too
#: long to convert.
REFUSALS = (msgspec.DecodeError, ValueError, OverflowError)
#: U+FEFF in UTF-8, as some editors write it at the begin of a file.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CHECKED_TOGETHER = 256
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))


def oversized_rows(bodies: Bodies, max_body_bytes: int) -> NDArray[np.int64]:
    """Return the rows of bodies of more than ``max_body_bytes``."""
    return np.flatnonzero(bodies.ends - bodies.starts > max_body_bytes)


def invalid_text_rows(bodies: Bodies) -> NDArray[np.int64]:
    """Return the rows of bodies that are not UTF-8."""
    if bodies.newline_separated and _is_text(bodies.joined()):
        return np.zeros(0, dtype=np.int64)
    invalid = []
    every = list(bodies)
    for start in range(0, len(every), _CHECKED_TOGETHER):
        together = every[start : start + _CHECKED_TOGETHER]
        # A newline ends every character, so the whole is valid exactly when each body is.
        if not _is_text(b"\n".join(together)):
            invalid += [start + at for at, body in enumerate(together) if not _is_text(body)]
    return np.array(invalid, dtype=np.int64)


def byte_order_mark_rows(bodies: Bodies) -> NDArray[np.int64]:
    """Return the rows of bodies that begin with the byte order mark of UTF-8."""
    if BYTE_ORDER_MARK not in bodies.buffer:
        return np.zeros(0, dtype=np.int64)
    return np.array([row for row, body in enumerate(bodies) if body.startswith(BYTE_ORDER_MARK)], dtype=np.int64)


def _is_text(value: bytes) -> bool:
    if value.isascii():
        return True
    try:
        # polars checks some ten times as fast as ``bytes.decode``, which also builds the text.
        pl.Series([value], dtype=pl.Binary).cast(pl.String)
    except pl.exceptions.ComputeError:
        return False
    return True


def too_deep_rows(bodies: Bodies) -> NDArray[np.int64]:
    """Return the rows of JSON bodies that nest deeper than NESTING_MAX."""
    # Each level takes an opening and a closing bracket; nearly all bodies are out of the question by their size alone.
    candidates = np.flatnonzero(bodies.ends - bodies.starts > 2 * NESTING_MAX)
    ranges = zip(candidates.tolist(), bodies.starts[candidates].tolist(), bodies.ends[candidates].tolist(), strict=True)
    return np.array([row for row, start, end in ranges if is_too_deep(bodies.buffer, start, end)], dtype=np.int64)


def is_too_deep(buffer: bytes, start: int, end: int) -> bool:
    """Say whether the JSON body from ``start`` to ``end`` nests deeper than NESTING_MAX."""
    if end - start <= 2 * NESTING_MAX:
        return False
    openings = buffer.count(b"[", start, end) + buffer.count(b"{", start, end)
    return openings > NESTING_MAX and nesting(buffer[start:end]) > NESTING_MAX


def nesting(body: bytes) -> int:
    """Return how deep the arrays and objects of a JSON text nest, exact up to the first error of syntax in it."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    structure = np.frombuffer(body.translate(None, _NOT_STRUCTURE), dtype=np.uint8)
    if not len(structure):
        return 0
    outside = np.cumsum(structure == ord('"')) % 2 == 0
    opening = ((structure == ord("[")) | (structure == ord("{"))) & outside
    closing = ((structure == ord("]")) | (structure == ord("}"))) & outside
    return int(np.cumsum(opening.astype(np.int64) - closing).max())


def other_rows(count: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of 0 to ``count`` that are not in ``rows``, in order."""
    others = np.ones(count, dtype=np.bool_)
    others[rows] = False
    return np.flatnonzero(others)


def on_fresh_stack(function: Callable[[Argument], Result], argument: Argument) -> Result:
    """Call a recursive function in a new thread, so that the caller's stack does not limit it."""
    outcome: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(function(argument))
        except BaseException as error:  # handed to the caller below
            errors.append(error)

    thread = Thread(target=run, name="headrace-deep-json")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return outcome[0]


def decoded_rows(
    bodies: Bodies,
    frame: pl.DataFrame,
    rows: NDArray[np.int64],
    bad: NDArray[np.bool_] | None,
    reason: Callable[[bytes], str],
) -> Decoded:
    """Return the decoded bodies, and the others as bad ones.

    ``rows`` says which body each row of ``frame`` is from, ``bad`` which of these rows have a value that does not fit. ``reason`` is
    called with each bad body.
    """
    if bad is not None:
        frame, rows = frame.filter(~bad), rows[~bad]
    if len(rows) == len(bodies):
        return Decoded(frame)
    refused = other_rows(len(bodies), rows).tolist()
    return Decoded(frame, rows, [BadBody(row, reason(bodies[row])) for row in refused])
