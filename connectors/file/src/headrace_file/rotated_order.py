"""The order in which rotated files were written.

It is that of their last change, which renaming, ``gzip`` and ``logrotate`` keep. kubelet does not keep it: it compresses a rotated file at
the next rotation, so the compressed file looks younger than the one after it. Where the names hold dates, these say more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: The last change of a file in nanoseconds, then app.log.2 before app.log.1, then the name.
OrderKey = tuple[int, int, str]

_STAMP = re.compile(
    r"[._-](?P<date>(?:19|20)\d\d-?(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12]\d|3[01]))(?:[._T-]?(?P<time>\d{4}(?:\d\d)?))?(?:\.[A-Za-z]\w*)*$"
)


def order_key(path: str, modified_ns: int) -> OrderKey:
    """Return the sort key of rotated files, from old to new: the last change, then app.log.2 before app.log.1."""
    number = re.search(r"\.(\d{1,6})(?:\.\w+)?$", path)
    return (modified_ns, -int(number[1]) if number else 0, path)


def stamp_of(path: str) -> str:
    """Return the digits of the date, and of the time of the day if there is one, at the end of a name; "" if there is none."""
    found = _STAMP.search(path)
    return "" if found is None else found["date"].replace("-", "") + (found["time"] or "")


def is_later(path: str, key: OrderKey, other: str, other_key: OrderKey) -> bool:
    """Return whether the file at ``path`` was written after the ``other``. Either path may be "".

    Of two names with dates of one form the dates decide, whatever the time of the last change says.
    """
    stamp, other_stamp = stamp_of(path), stamp_of(other)
    if stamp and len(stamp) == len(other_stamp) and stamp != other_stamp:
        return stamp > other_stamp
    return key > other_key


def ordered(files: Sequence[tuple[str, int]]) -> list[tuple[OrderKey, str]]:
    """Return rotated files, given by path and last change, from old to new: their keys and paths.

    A file was not written to after one with a later date was begun: its key has the earliest change of those with its date or a later one.
    """
    earliest: dict[int, int] = {}
    found: list[tuple[OrderKey, str]] = []
    for stamp, path, modified_ns in sorted(((stamp_of(path), path, at) for path, at in files), reverse=True):
        at = modified_ns
        if stamp:
            at = earliest[len(stamp)] = min(modified_ns, earliest.get(len(stamp), modified_ns))
        found.append((order_key(path, at), path))
    return sorted(found)
