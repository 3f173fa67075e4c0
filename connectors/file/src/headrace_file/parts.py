"""Names of part files. A name says which queue's rows a part holds, and up to which position."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable

from headrace.flow.messages import Position, Queue

from headrace_file.partitions import folders_of

#: All files of the sink except finished parts are below this folder; readers leave out names that begin with ``_``.
HIDDEN = "_headrace"
_SLUG_MAX = 60
_PART = re.compile(r"^.+-(?P<key>[0-9a-f]{16})-(?P<offset>\d{19})-(?P<index>\d{10})\.[A-Za-z0-9.]+$")


def queue_key(queue: Queue, writer: str) -> str:
    """Return a key that distinguishes the queue's files from those of others, whatever characters its id has."""
    return hashlib.blake2b(f"{writer}\0{queue.id}".encode(), digest_size=8).hexdigest()


def slug(queue: Queue) -> str:
    """Return the end of the queue's id, for people, in characters that are harmless in file names."""
    text = re.sub(r"[^A-Za-z0-9._]+", "-", queue.id).strip("-._")
    return text[-_SLUG_MAX:].strip("-._") or "queue"


def part_name(prefix: str, queue: Queue, key: str, last: Position, extension: str) -> str:
    """Return the name of the part that ends with ``last``. Names of one queue sort in the order of its rows."""
    return f"{prefix}-{slug(queue)}-{key}-{last.offset:019d}-{last.index:010d}.{extension}"


def is_part(name: str) -> bool:
    """Return whether a file of that name is a finished part."""
    return _PART.match(name) is not None


def _entries(folder: str, *, missing_ok: bool) -> contextlib.AbstractContextManager[Iterable[os.DirEntry[str]]]:
    """Return the entries of a folder; ``missing_ok``: a program that took its parts may have removed it."""
    try:
        return os.scandir(folder)
    except FileNotFoundError:
        if not missing_ok:
            raise
        return contextlib.nullcontext(())


def list_positions(directory: str) -> dict[str, Position]:
    """Return the greatest position among the finished parts, by queue key. Raises OSError."""
    found: dict[str, Position] = {}
    for folder in folders_of(directory):
        with _entries(folder, missing_ok=folder != directory) as entries:
            for entry in entries:
                matched = _PART.match(entry.name)
                if matched is not None and entry.is_file():
                    position = Position(int(matched["offset"]), int(matched["index"]))
                    key = matched["key"]
                    if key not in found or position > found[key]:
                        found[key] = position
    return found
