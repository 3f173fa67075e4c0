"""Server-sent events: the status of jobs, the steps of an operation, and the lines of a log as they come."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

_LOOK_SECONDS = 0.5
#: How much of the end of a log is looked at for its last lines.
_LAST_BYTES_MAX = 1024 * 1024
#: A comment now and then tells both ends that the connection is there.
_KEEP_ALIVE_LOOKS = 30


def event_stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    """Return events as a response. It ends when the client goes or when the server stops."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def event(kind: str, value: Any) -> bytes:
    """Return one event, with a JSON value in one line."""
    return f"event: {kind}\ndata: ".encode() + msgspec.json.encode(value, enc_hook=str) + b"\n\n"


async def changes(
    kind: str, read: Callable[[], Any], *, ended: Callable[[Any], bool] | None = None
) -> AsyncIterator[bytes]:
    """Yield what ``read`` returns whenever it differs from before, until ``ended`` says so."""
    last: bytes | None = None
    looks = 0
    while True:
        value = await run_in_threadpool(read)
        made = event(kind, value)
        if made != last:
            last, looks = made, 0
            yield made
        if ended is not None and ended(value):
            return
        looks += 1
        if looks % _KEEP_ALIVE_LOOKS == 0:
            yield b": still here\n\n"
        await asyncio.sleep(_LOOK_SECONDS)


async def log_lines(path: Path, last: int, *, look_seconds: float = _LOOK_SECONDS) -> AsyncIterator[bytes]:
    """Yield the last lines of a log and then those that come, also behind a rotation. Looks every ``look_seconds``."""
    lines, rest, position, inode = await run_in_threadpool(_end_of, path, last)
    for line in lines:
        yield event("line", line)
    looks = 0
    while True:
        before = inode
        content, position, inode = await run_in_threadpool(_read_on, path, position, inode)
        if inode != before:
            rest = b""  # the last line of a log that was rotated has its end there
        *whole, rest = (rest + content).split(b"\n")
        for each in whole:
            yield event("line", each.decode("utf-8", "replace"))
        looks += 1
        if looks % _KEEP_ALIVE_LOOKS == 0:
            yield b": still here\n\n"
        await asyncio.sleep(look_seconds)


def _end_of(path: Path, count: int) -> tuple[list[str], bytes, int, int | None]:
    """Return the last whole lines of a log, the line that is being written, and the place behind both: (position, inode)."""
    content, position, inode = b"", 0, None
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            file.seek(max(0, found.st_size - _LAST_BYTES_MAX))
            content = file.read()
            position, inode = file.tell(), found.st_ino
    except FileNotFoundError:
        pass
    *whole, rest = content.split(b"\n")
    return [line.decode("utf-8", "replace") for line in whole][-count:] if count > 0 else [], rest, position, inode


def _read_on(path: Path, position: int, inode: int | None) -> tuple[bytes, int, int | None]:
    """Read what was added to a log; one that was rotated is read from its beginning. Its end before the rotation may be missing."""
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_ino != inode or found.st_size < position:
                position = 0
            file.seek(position)
            content = file.read(1024 * 1024)
            return content, position + len(content), found.st_ino
    except FileNotFoundError:
        return b"", 0, None


def last_lines(path: Path, count: int, *, most_bytes: int = _LAST_BYTES_MAX) -> list[str]:
    """Return the last lines of a log, of its last megabyte at most. Empty if there is no log."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    return lines[-count:] if count > 0 else []
