"""Positions in the log, and the offsets that belong to them.

A position is a log sequence number (LSN), the byte of the log up to which transactions that end before it were read. Transactions
come in the order of their commits. Offsets are bytes of the log since the job began, times ``OFFSETS_PER_BYTE``. The changes of a
transaction count from the position of its commit, which takes 34 bytes or more; one that has more changes than there is room for moves the
offsets behind it up (``base``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.flow.messages import ReadPosition
from headrace.foundation.errors import DataError

#: Room for 1,114,112 changes of a transaction, and for 128 TB of log.
OFFSETS_PER_BYTE = 1 << 15
_BYTES_MAX = 1 << 47


def lsn_of(text: str) -> int:
    """Read ``16/B374D848``. Raises ValueError."""
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(lsn: int) -> str:
    """Return an LSN as the server writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where the next change is read: behind ``rows`` changes of the transaction that commits at ``commit``, or behind ``lsn``."""

    #: All transactions that end before it were read.
    lsn: int
    #: Where offsets begin.
    origin: int
    #: How much offsets are greater because of large transactions and of a snapshot.
    base: int = 0
    #: The commit LSN of a transaction of which some changes were read; 0 if there is none.
    commit: int = 0
    rows: int = 0
    #: The snapshot whose chunks already have changes of transactions that end before ``until``.
    run: str = ""
    until: int = 0
    #: Which table of which server is followed: its number, and the system identifier. 0 and empty in positions of older versions.
    table: int = 0
    server: str = ""
    #: The number of the table's entry in its publication, which is another one when it was taken out and put back; 0: it has none.
    entry: int = 0

    @property
    def offset(self) -> int:
        return self.offset_of(self.commit or self.lsn) + self.rows

    def offset_of(self, lsn: int) -> int:
        """Return the offset of a position from this place on. Raises DataError when there are no offsets for it."""
        if lsn - self.origin >= _BYTES_MAX:
            raise DataError(
                "the log has grown by more bytes since the job began than offsets can count", plugin="postgres_changes",
                hint="start with a new checkpoint",
            )  # fmt: skip
        return self.base + (lsn - self.origin) * OFFSETS_PER_BYTE

    def hint(self) -> dict[str, Any]:
        """Return JSON values; ``of`` reads them."""
        more: dict[str, Any] = {
            "base": self.base,
            "commit": lsn_text(self.commit) if self.commit else "",
            "rows": self.rows,
        }
        more |= {"table": self.table, "server": self.server, "entry": self.entry}
        if self.lsn < self.until:
            more |= {"run": self.run, "until": lsn_text(self.until)}
        return {
            "lsn": lsn_text(self.lsn),
            "origin": lsn_text(self.origin),
            **{name: value for name, value in more.items() if value},
        }

    def read_position(self) -> ReadPosition:
        """Return the place as a position whose hint holds all of it."""
        return ReadPosition(self.offset, self.hint())

    @classmethod
    def of(cls, hint: Mapping[str, Any]) -> LogPlace:
        """Read a hint. Raises KeyError or ValueError for a hint of another source."""
        commit = lsn_of(hint["commit"]) if "commit" in hint else 0
        until = lsn_of(hint["until"]) if "until" in hint else 0
        return cls(
            lsn_of(hint["lsn"]), lsn_of(hint["origin"]), int(hint.get("base", 0)), commit, int(hint.get("rows", 0)),
            str(hint.get("run", "")), until, int(hint.get("table", 0)), str(hint.get("server", "")), int(hint.get("entry", 0)),
        )  # fmt: skip

    def after(self, end: int) -> LogPlace:
        """Return the place behind the transaction that is open here, whose commit ends at ``end``."""
        lacking = max(0, self.rows - (end - self.commit) * OFFSETS_PER_BYTE)
        return replace(self, lsn=end, base=self.base + lacking, commit=0, rows=0)
