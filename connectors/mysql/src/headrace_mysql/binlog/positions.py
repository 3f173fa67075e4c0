"""Positions in a binary log, between two transactions, and the offsets that belong to them.

A position is a set of GTIDs (MariaDB: the last one of each domain; MySQL: all that were executed) or a file with a byte
position. Offsets must grow with the log and be the same whenever it is read, also from another server after a fail-over. So the
``ordinal`` of a position by GTIDs is the number of transactions before it, times ``ROWS_PER_TRANSACTION``; that of a file
position is made of the number of the file and the byte position. The rows of a transaction count from the position before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.foundation.errors import DataError

#: Room for the rows of a transaction between two ordinals by GTID. A larger transaction moves the offsets after it up.
ROWS_PER_TRANSACTION = 1 << 24
#: Room for a binary log file between two ordinals by file.
_FILE_BYTES = 1 << 38
_ORDINAL_MAX = 1 << 62
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

#: What ends a transaction: (domain, server, number) in MariaDB, (source, number) in MySQL, (file, position).
End = tuple[Any, ...]


class LogPosition(Protocol):
    """A position between two transactions. Immutable."""

    @property
    def ordinal(self) -> int:
        """Grows with the position."""

    def after(self, ends: Sequence[End]) -> LogPosition:
        """Return the position after these transactions, which follow this one."""

    def covers(self, other: LogPosition) -> bool:
        """Return whether everything before ``other``, a position of the same class, is before this position too."""

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; ``position_from_json`` reads them."""

    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class MariaDBPosition:
    """The last GTID of each replication domain: (server id, sequence number) by domain id."""

    domains: Mapping[int, tuple[int, int]]

    @classmethod
    def parse(cls, text: str) -> MariaDBPosition:
        """Read ``0-1-100,1-2-7``. Raises ValueError."""
        domains = {}
        for part in filter(None, (each.strip() for each in text.split(","))):
            domain, server, number = part.split("-")
            domains[int(domain)] = (int(server), int(number))
        return cls(domains)

    @property
    def ordinal(self) -> int:
        return _checked(sum(number for _, number in self.domains.values()) * ROWS_PER_TRANSACTION)

    def after(self, ends: Sequence[End]) -> MariaDBPosition:
        return MariaDBPosition({**self.domains, **{domain: (server, number) for domain, server, number in ends}})

    def covers(self, other: LogPosition) -> bool:
        assert isinstance(other, MariaDBPosition)
        return all(self.domains.get(domain, (0, 0))[1] >= number for domain, (_, number) in other.domains.items())

    def to_json(self) -> dict[str, Any]:
        return {"gtid": str(self)}

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self.domains.items()))


@dataclass(frozen=True, slots=True)
class MySQLPosition:
    """The executed GTIDs: intervals of transaction numbers, both ends included, by the UUID of their source."""

    sources: Mapping[str, tuple[tuple[int, int], ...]]

    @classmethod
    def parse(cls, text: str) -> MySQLPosition:
        """Read ``UUID:1-5:7,UUID:1-3``. Raises ValueError, also for tagged GTIDs."""
        sources: dict[str, tuple[tuple[int, int], ...]] = {}
        for part in filter(None, (each.strip() for each in text.replace("\n", "").split(","))):
            source, *intervals = part.lower().split(":")
            if _UUID.fullmatch(source) is None or not intervals:
                raise ValueError(f"{part!r} is not a set of GTIDs")
            found = []
            for interval in intervals:
                first, _, last = interval.partition("-")
                found.append((int(first), int(last or first)))
            sources[source] = _merged(found)
        return cls(sources)

    @property
    def ordinal(self) -> int:
        count = sum(last - first + 1 for intervals in self.sources.values() for first, last in intervals)
        return _checked(count * ROWS_PER_TRANSACTION)

    def after(self, ends: Sequence[End]) -> MySQLPosition:
        added: dict[str, list[tuple[int, int]]] = {}
        for source, number in ends:
            intervals = added.setdefault(source, [])
            if intervals and intervals[-1][1] + 1 == number:
                intervals[-1] = (intervals[-1][0], number)
            else:
                intervals.append((number, number))
        changed = {source: _merged([*self.sources.get(source, ()), *new]) for source, new in added.items()}
        return MySQLPosition({**self.sources, **changed})

    def covers(self, other: LogPosition) -> bool:
        assert isinstance(other, MySQLPosition)
        return all(
            any(low <= first and last <= high for low, high in self.sources.get(source, ()))
            for source, intervals in other.sources.items()
            for first, last in intervals
        )

    def to_json(self) -> dict[str, Any]:
        return {"gtids": str(self)}

    def __str__(self) -> str:
        return ",".join(
            ":".join([source, *(f"{first}-{last}" if last > first else f"{first}" for first, last in intervals)])
            for source, intervals in sorted(self.sources.items())
        )


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A file of the binary log, such as ``binlog.000003``, and a byte position in it at which an event begins."""

    file: str
    place: int
    #: The server that names it so: on others the same name is another place. 0: not known, in positions of older versions.
    server: int = 0

    @property
    def ordinal(self) -> int:
        # Each row takes at least a byte, so that rows of a transaction can be counted from the position of its begin.
        return _checked(file_number(self.file) * _FILE_BYTES + self.place)

    def after(self, ends: Sequence[End]) -> FilePosition:
        if not ends:
            return self
        file, place = ends[-1]
        return FilePosition(file, place, self.server)

    def covers(self, other: LogPosition) -> bool:
        assert isinstance(other, FilePosition)
        return self.ordinal >= other.ordinal

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file, "place": self.place, **({"server": self.server} if self.server else {})}

    def __str__(self) -> str:
        return f"{self.file}:{self.place}"


def check_server(position: LogPosition, server: int) -> None:
    """Raise DataError when a position by file was named by another server than the one with this id."""
    if isinstance(position, FilePosition) and position.server not in (0, server):
        raise DataError(
            f"the position {position} is of the server with the id {position.server}, and this one has the id {server}: the log files of "
            "both have the same names but different content",
            plugin="mysql",
            hint="empty the target and start with a new checkpoint: the job reads the whole table again; positions by GTID "
            "(positions='gtid') stay valid after a fail-over",
        )


def file_number(file: str) -> int:
    """Return the number at the end of a file's name. Raises DataError when there is none."""
    number = file.rpartition(".")[2]
    if not number.isdigit():
        raise DataError(f"{file!r} is not a file of a binary log: its name has no number", plugin="mysql")
    return int(number)


def position_from_json(value: Mapping[str, Any]) -> LogPosition:
    """Return the position that ``to_json`` gave. Raises KeyError or ValueError for anything else."""
    if "gtid" in value:
        return MariaDBPosition.parse(str(value["gtid"]))
    if "gtids" in value:
        return MySQLPosition.parse(str(value["gtids"]))
    return FilePosition(str(value["file"]), int(value["place"]), int(value.get("server", 0)))


def _merged(intervals: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def _checked(ordinal: int) -> int:
    if ordinal >= _ORDINAL_MAX:
        raise DataError(
            "the server has had more transactions than offsets can count",
            plugin="mysql",
            hint="read by file and position: positions='file'",
        )
    return ordinal
