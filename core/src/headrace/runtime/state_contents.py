"""Shows the contents of a stored state: the verbs of a savepoint or checkpoint, their sizes, and the rows of a key.

Nothing of the job is needed for whole states whose operators keep frames (``headrace.runtime.state_frames``); what others store is
counted in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.foundation.checksums import unsealed
from headrace.foundation.errors import CheckpointError, OptionError
from headrace.runtime.state_frames import unpack

if TYPE_CHECKING:
    import polars as pl

_NEVER = -(2**63)
#: Columns with the place of a row, which are not part of its content.
_PLACES = frozenset({"__hr_slot", "__hr_number", "__hr_hash", "__hr_tick"})
_PACKED = "__hr_state"


@dataclass
class OperatorContents:
    """The state of one verb in all shards. ``rows`` for each frame of the state; None if the state is not made of
    frames.
    """

    id: str
    bytes: int = 0
    rows: dict[str, int] | None = None
    #: Columns, without those that say where a row lies.
    columns: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class ShardContents:
    """The state of one shard of a shuffle."""

    shuffle: str
    number: int
    watermark_us: int | None
    #: (queue, side, watermark in microseconds or None, idle).
    upstreams: list[tuple[str, int, int | None, bool]]
    operators: Mapping[str, bytes]


def shard_contents(shuffle: str, number: int, state: bytes) -> ShardContents:
    """Return the content of a whole state of a shard. Raises CheckpointError."""
    try:
        stored: dict[str, Any] = msgspec.msgpack.decode(unsealed(state, f"the state of shard {shuffle}/{number}"))
        upstreams = [
            (f"{source}/{name}", side, _known(watermark_us), bool(idle))
            for name, source, side, _, watermark_us, idle in stored["upstreams"]
        ]
        return ShardContents(shuffle, number, _known(stored["watermark_us"]), upstreams, stored["operators"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the state of shard {shuffle}/{number} is damaged: {error}") from error


def operator_contents(shards: Sequence[ShardContents]) -> dict[str, OperatorContents]:
    """Return the sizes of all verbs over all shards."""
    found: dict[str, OperatorContents] = {}
    for shard in shards:
        for name, state in shard.operators.items():
            about = found.setdefault(name, OperatorContents(name))
            about.bytes += len(state)
            for frame_name, frame in _frames(state):
                about.rows = about.rows or {}
                about.rows[frame_name] = about.rows.get(frame_name, 0) + frame.height
                about.columns[frame_name] = [column for column in frame.columns if column not in _PLACES]
    return found


def rows_of_key(
    shards: Sequence[ShardContents], key: Mapping[str, str]
) -> Iterator[tuple[str, str, int, list[dict[str, Any]]]]:
    """Yield (verb, frame, shard, rows) for the rows whose columns have these values as texts; "NULL": no value.

    Frames without these columns have none. Raises OptionError when no frame has them.
    """
    import polars as pl

    seen = False
    for shard in shards:
        for name, state in shard.operators.items():
            for frame_name, frame in _frames(state):
                if not set(key) <= set(frame.columns):
                    continue
                seen = True
                wanted = [
                    pl.col(column).is_null() if text == "NULL" else pl.col(column).cast(pl.String) == text
                    for column, text in key.items()
                ]
                rows = frame.filter(pl.all_horizontal(wanted))
                if rows.height:
                    yield name, frame_name, shard.number, _shown(rows)
    if not seen:
        raise OptionError(f"no verb keeps rows with the columns {', '.join(key)}", option="key")


def _shown(rows: pl.DataFrame) -> list[dict[str, Any]]:
    from headrace.flow.rows import unpack_rows

    made = rows.select([column for column in rows.columns if column not in _PLACES]).to_dicts()
    if _PACKED in rows.columns:  # the state of a Python function
        for row, content in zip(made, unpack_rows(rows[_PACKED]), strict=True):
            row.pop(_PACKED)
            row["state"] = content
    return made


def _frames(state: bytes) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the frames of an operator's state; nothing when it is not of frames."""
    if not state:
        return
    try:
        _, frames, _ = unpack(state)
    except CheckpointError:  # an operator of another package may store any bytes
        return
    yield from frames.items()


def _known(time_us: int) -> int | None:
    return None if time_us == _NEVER else int(time_us)
