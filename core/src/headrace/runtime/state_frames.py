"""State as bytes: frames as Arrow IPC and plain values, in one versioned MessagePack map.

Operators that store their state so can be looked into (``headrace state show``).
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.foundation.errors import CheckpointError

if TYPE_CHECKING:
    import polars as pl

    from headrace.interfaces.frozen_state import StateContent

#: Increased when older versions can no longer read the format.
FORMAT_VERSION = 1


def pack(kind: str, frames: Mapping[str, pl.DataFrame], values: Mapping[str, Any] | None = None) -> bytes:
    """Return named frames and values (MessagePack types) as bytes. ``kind``: "snapshot" or "delta"."""
    return msgspec.msgpack.encode(
        {
            "format": FORMAT_VERSION,
            "kind": kind,
            "frames": {name: _ipc(frame) for name, frame in frames.items()},
            "values": dict(values or {}),
        }
    )


def pack_into(
    content: StateContent, kind: str, frames: Mapping[str, pl.DataFrame], values: Mapping[str, Any] | None = None
) -> None:
    """Append what ``pack`` returns. Large frames are not copied while Python's lock is held."""
    encode = msgspec.msgpack.encode
    content.write(map_header(4) + b"".join(map(encode, ("format", FORMAT_VERSION, "kind", kind, "frames"))))
    content.write(map_header(len(frames)))
    for name, frame in frames.items():
        content.write(encode(name))
        content.frame(frame)
    content.write(encode("values") + encode(dict(values or {})))


def map_header(count: int) -> bytes:
    """Return the beginning of a map of MessagePack with so many names and values."""
    return b"\xdf" + count.to_bytes(4, "big")


def unpack(state: bytes) -> tuple[str, dict[str, pl.DataFrame], dict[str, Any]]:
    """Return (kind, frames, values) of what ``pack`` made. Raises CheckpointError: damaged, or of a newer version."""
    import polars as pl

    try:
        stored = msgspec.msgpack.decode(state)
        version = int(stored["format"])
        if version > FORMAT_VERSION:
            raise CheckpointError(
                f"the state of an operator was written by a newer version of headrace (format {version})",
                hint="run the job with that version, or with another checkpoint directory",
            )
        frames = {name: pl.read_ipc(io.BytesIO(content)) for name, content in stored["frames"].items()}
        return str(stored["kind"]), frames, dict(stored["values"])
    except (
        msgspec.DecodeError, KeyError, TypeError, ValueError, OSError, pl.exceptions.PolarsError,
        pl.exceptions.PanicException,  # of some frames that are damaged polars says it so
    ) as error:  # fmt: skip
        raise CheckpointError(
            f"the state of an operator is damaged: {error}", hint="go back to an older checkpoint"
        ) from error


def _ipc(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_ipc(buffer, compression="uncompressed")
    return buffer.getvalue()
