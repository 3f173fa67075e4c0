"""Shared parts of formats: options, the reasons of bad bodies, bodies as texts, and a base class for formats that can
only be read.

A format lists the options that it supports in its own settings, as ``max_body_bytes: MaxBodyBytes = 16 * 1024 * 1024``.
So they have the same names and descriptions in all formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from headrace.foundation.errors import OptionError, PlanError, did_you_mean
from headrace.interfaces.codec import BadBody, Codec, Encoder
from headrace.interfaces.settings import option

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from headrace.flow.messages import Bodies
    from headrace.flow.schema import Schema

MaxBodyBytes = Annotated[
    int, option("The largest size of a body, in bytes. A larger body is a bad record and is not parsed.", ge=1)
]
TimestampUnit = Annotated[
    Literal["s", "ms", "us", "ns"],
    option("The unit of a timestamp that is a whole number; it counts from 1970-01-01 UTC."),
]
#: For formats in which all values are texts, also whole numbers.
TimestampFormat = Annotated[
    str | None,
    option("The layout of timestamps, in the format codes of strftime. Default: ISO 8601 or whole numbers."),
]
#: For formats that distinguish numbers from texts.
TextTimestampFormat = Annotated[
    str | None,
    option("The layout of timestamps that are texts, in the format codes of strftime. Default: ISO 8601."),
]
JsonColumns = Annotated[
    tuple[str, ...],
    option("Columns of type string that hold a JSON value as text. They are written as this value, not as a string."),
]


class ReadOnlyCodec(Codec):
    """A format that can only be read. The class sets the format's name, for errors."""

    name: ClassVar[str]

    def encoder(self, schema: Schema | None) -> Encoder:
        """Raise PlanError: the format can only be read."""
        raise PlanError(
            f"the format {self.name!r} can only be read",
            plugin=self.name,
            hint="write another format, such as format='json'",
        )


def check_fixed_columns(schema: Mapping[str, pl.DataType], fixed: Schema, plugin: str) -> None:
    """Compare a schema that a user gives with the columns of a format that always has the same ones.

    Called by ``decoder``. Raises OptionError for a column that the format does not have, or that has another type
    there.
    """
    for name, kind in schema.items():
        if name not in fixed:
            hint = did_you_mean(name, fixed, known="columns")
            raise OptionError(f"the format has no column {name!r}", plugin=plugin, option="schema", hint=hint)
        if kind != fixed[name]:
            raise OptionError(
                f"column {name!r} has a different type in this format",
                plugin=plugin,
                option="schema",
                hint=f"leave the schema out, or declare {name} as in {fixed}; cast it by an expression",
            )


def too_large(body_bytes: int, body_bytes_max: int) -> str:
    """Return the reason of a body of more bytes than the option ``max_body_bytes`` allows."""
    return f"the body has {body_bytes} bytes, more than max_body_bytes = {body_bytes_max}"


def not_utf8(error: UnicodeDecodeError) -> str:
    """Return the reason of a body that is not a text."""
    return f"not valid UTF-8 at byte {error.start}: {error.reason}"


def texts_of(
    bodies: Bodies, body_bytes_max: int, *, latin_1: bool = False
) -> tuple[pl.Series, NDArray[np.int64] | None, list[BadBody]]:
    """Return bodies as texts, their rows (None: all), and the bodies that are too large or not UTF-8.

    With ``latin_1``, a body that is not UTF-8 is read as Latin-1, in which every byte is a character.
    """
    import numpy as np
    import polars as pl

    every = list(bodies)
    if not len(bodies) or int((bodies.ends - bodies.starts).max()) <= body_bytes_max:
        try:
            return pl.Series(every, dtype=pl.Binary).cast(pl.String), None, []
        except pl.exceptions.ComputeError:
            pass  # at least one body is not UTF-8, so each is checked
    texts: list[str] = []
    rows: list[int] = []
    bad: list[BadBody] = []
    for row, body in enumerate(every):
        if len(body) > body_bytes_max:
            bad.append(BadBody(row, too_large(len(body), body_bytes_max)))
            continue
        try:
            texts.append(body.decode())
        except UnicodeDecodeError as error:
            if not latin_1:
                bad.append(BadBody(row, not_utf8(error)))
                continue
            texts.append(body.decode("latin-1"))
        rows.append(row)
    return pl.Series(texts, dtype=pl.String), np.array(rows, dtype=np.int64), bad
