"""Splits lines into the texts of their fields, by the grammar of RFC 5424, or by that of messages that are sent as RFC
3164.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

Standard = Literal["auto", "rfc3164", "rfc5424"]

#: The fields that ``fields_of`` gives.
FIELDS = ("priority", "version", "time", "host", "app", "process_id", "message_id", "structured_data", "message")
_BEGIN_5424 = r"^<[0-9]{1,3}>1 "
#: A name within structured data: printable ASCII without = ] " and blanks.
NAME = r"[!#-<>-\\^-~]+"
#: A pair within structured data.
PAIR = rf' {NAME}="(?:[^"\\\]]|\\.)*"'
ELEMENT = rf"\[{NAME}(?:{PAIR})*\]"
#: The parts of a message of RFC 5424, each with a description: it is named if a line matches all parts before, but not
#: this one.
_PARTS_5424 = (
    ("a priority such as <13>", r"^<(?P<priority>[0-9]{1,3})>"),
    ("the version 1 and a blank", r"(?P<version>1) "),
    ("a timestamp and a blank", r"(?P<time>[^ ]+) "),
    ("a host and a blank", r"(?P<host>[^ ]+) "),
    ("an app and a blank", r"(?P<app>[^ ]+) "),
    ("a process id and a blank", r"(?P<process_id>[^ ]+) "),
    ("a message id and a blank", r"(?P<message_id>[^ ]+) "),
    ("structured data", rf"(?P<structured_data>-|(?:{ELEMENT})+)"),
    ("a blank, and the message", r"(?: \x{feff}?(?P<message>.*))?\z"),
)
_LINE_5424 = "(?s)" + "".join(part for _, part in _PARTS_5424)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TIME_3164 = (
    rf"(?:{'|'.join(MONTHS)}) [ 0-9]?[0-9] (?:[0-9]{{4}} )?[0-9][0-9]:[0-9][0-9]:[0-9][0-9](?:[.,][0-9]{{1,9}})?"
    r"|[0-9]{4}-[0-9][0-9]-[0-9][0-9][T ][0-9][0-9]:[0-9][0-9]:[0-9][0-9](?:[.,][0-9]{1,9})?(?:Z|[+-][0-9][0-9]:?[0-9][0-9])?"
)
#: Routers write a sequence number before the time, and a sign if their clock is not set. The host may be missing, as in
#: messages that programs write to the local socket. Then the tag follows, which ends with a colon.
_LINE_3164 = (
    r"(?s)^<(?P<priority>[0-9]{1,3})>"
    rf"(?:(?:[0-9]+: )?[*.]?(?P<time>{_TIME_3164}):? (?:(?P<host>[^\s\[\]]*[^\s\[\]:]) (?:: )?)?)?"
    r"(?:(?P<app>[^\s:\[\]]+)(?:\[(?P<process_id>[^\]\s]*)\]:?|:)(?: |\z))?"
    r"(?P<message>.*)\z"
)
_SHOWN_MAX = 60


def fields_of(lines: pl.Series, standard: Standard) -> pl.DataFrame:
    """Return a row of ``FIELDS``, as texts, for each line. ``priority`` is NULL if the line does not match; another
    field is NULL if the line does not have it.
    """
    if standard == "rfc5424":
        return _fields_5424(lines)
    if standard == "rfc3164":
        return _fields_3164(lines)
    newer = lines.str.contains(_BEGIN_5424)
    if newer.all():
        return _fields_5424(lines)
    if not newer.any():
        return _fields_3164(lines)
    both = pl.concat([_fields_5424(lines.filter(newer)), _fields_3164(lines.filter(~newer))])
    places = np.empty(len(lines), dtype=np.int64)
    places[np.concatenate([newer.arg_true().to_numpy(), (~newer).arg_true().to_numpy()])] = np.arange(len(lines))
    return both[places]


def _fields_5424(lines: pl.Series) -> pl.DataFrame:
    found = lines.str.extract_groups(_LINE_5424).struct.unnest()
    optional = ("host", "app", "process_id", "message_id", "structured_data")
    known = [pl.when(pl.col(name) != "-").then(pl.col(name)).alias(name) for name in optional]
    return found.with_columns(known).select(FIELDS)


def _fields_3164(lines: pl.Series) -> pl.DataFrame:
    found = lines.str.extract_groups(_LINE_3164).struct.unnest()
    missing = [pl.lit(None, pl.String).alias(name) for name in FIELDS if name not in found.columns]
    empty = pl.when(pl.col("process_id") != "").then(pl.col("process_id")).alias("process_id")
    return found.with_columns(*missing, empty).select(FIELDS)


def reasons(lines: Sequence[str], standard: Standard) -> list[str]:
    """Return, for lines that do not match, what was expected at which place."""
    texts = pl.Series(lines, dtype=pl.String)
    newer = texts.str.contains(_BEGIN_5424).to_numpy() if standard == "auto" else np.full(len(texts), True)
    if standard == "rfc3164":
        newer[:] = False
    longest: NDArray[np.object_] = np.full(len(texts), "", dtype=object)
    missing = np.zeros(len(texts), dtype=np.int64)
    pattern = "(?s)"
    for number, (_, part) in enumerate(_PARTS_5424):
        pattern += part
        begins = texts.str.extract(f"({pattern})", 1)
        fits = begins.is_not_null().to_numpy()
        longest[fits] = begins.filter(begins.is_not_null()).to_list()
        missing[fits] = number + 1
    made = []
    for row, text in enumerate(lines):
        if not newer[row] or not missing[row]:
            made.append(f"the message begins with no priority such as <13>: {shown(text)}")
        else:
            what = _PARTS_5424[min(int(missing[row]), len(_PARTS_5424) - 1)][0]
            made.append(f"RFC 5424: {what} should stand at {shown(text[len(longest[row]) :])}")
    return made


def shown(text: str) -> str:
    """Return a text in double quotes as reasons show it, cut when it is long."""
    return f'"{text}"' if len(text) <= _SHOWN_MAX else f'"{text[:_SHOWN_MAX]}…"'
