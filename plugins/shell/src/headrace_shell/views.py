"""The rows of a running query: what its changes have made of them so far."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import polars as pl
from headrace.flow.messages import CHANGE, HEADER_COLUMNS

_TAKEN_BACK = (1, 3)  # -U, -D


class View:
    """Follows the directory into which a query writes its changes.

    Rows that are only added are kept up to ``rows_max``, the newest; of rows that change all are kept, since each may be taken back.
    Called by one thread.
    """

    def __init__(self, name: str, path: str, schema: dict[str, Any], *, rows_max: int = 10_000) -> None:
        self.name = name
        self.schema = schema
        #: How many changes have come.
        self.changes = 0
        #: Whether rows have been taken back.
        self.is_updating = False
        self._path, self._rows_max = path, rows_max
        self._seen: set[str] = set()
        self._added: list[pl.DataFrame] = []
        self._counts: Counter[Any] = Counter()
        self._rows: dict[Any, tuple[Any, ...]] = {}

    def refresh(self) -> bool:
        """Take the changes that have come since. Returns whether there are any."""
        try:
            names = sorted(set(os.listdir(self._path)) - self._seen)
        except FileNotFoundError:
            return False
        found = False
        for name in names:
            if not name.endswith(".arrow"):
                continue
            self._seen.add(name)
            self._take(pl.read_ipc(os.path.join(self._path, name)))
            found = True
        return found

    def _take(self, frame: pl.DataFrame) -> None:
        self.changes += frame.height
        kinds = frame[CHANGE] if CHANGE in frame.columns else None
        rows = frame.drop(HEADER_COLUMNS, strict=False)
        if kinds is None or not self.is_updating:
            if kinds is not None and bool((kinds != 0).any()):
                self._become_updating()
            else:
                self._add(rows)
                return
        for row, kind in zip(
            rows.iter_rows(), kinds.to_list() if kinds is not None else [0] * rows.height, strict=True
        ):
            self._change(_hashable(row), row, -1 if kind in _TAKEN_BACK else 1)

    def _add(self, rows: pl.DataFrame) -> None:
        self._added.append(rows)
        if sum(each.height for each in self._added) > 2 * self._rows_max:
            self._added = [pl.concat(self._added).tail(self._rows_max)]

    def _become_updating(self) -> None:
        self.is_updating = True
        before, self._added = self._added, []
        for frame in before:
            for row in frame.iter_rows():
                self._change(_hashable(row), row, 1)

    def _change(self, key: Any, row: tuple[Any, ...], by: int) -> None:
        self._counts[key] += by
        if self._counts[key]:
            self._rows.pop(key, None)
            self._rows[key] = row
        else:
            del self._counts[key]
            self._rows.pop(key, None)

    def frame(self, last: int | None = None) -> pl.DataFrame:
        """Return the rows that there are, those that came last at the end; of them the last ones."""
        if not self.is_updating:
            whole = pl.concat(self._added) if self._added else pl.DataFrame(schema=self.schema)
            return whole if last is None else whole.tail(last)
        rows: list[tuple[Any, ...]] = []
        for key, row in self._rows.items():
            rows += [row] * max(0, self._counts[key])
        return pl.DataFrame(rows if last is None else rows[-last:], schema=self.schema, orient="row")

    @property
    def height(self) -> int:
        """How many rows there are; of rows that are only added, how many have come."""
        return sum(self._counts.values()) if self.is_updating else self.changes


def _hashable(row: tuple[Any, ...]) -> Any:
    try:
        hash(row)
    except TypeError:
        return repr(row)
    return row
