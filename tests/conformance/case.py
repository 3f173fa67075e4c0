"""What a conformance case is, and how its input is laid out and its output read back."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace import Job


@dataclass(frozen=True)
class Case:
    """A job and its input.

    ``files`` are input files by name (``.gz`` ones are compressed), ``build`` makes the job for a directory: it reads
    below ``directory/in`` and writes below ``directory/out``. ``expected`` counts the rows per sink directory, so that a
    case in which every backend is wrong in the same way still fails.
    """

    name: str
    files: Mapping[str, Sequence[str | bytes]]
    build: Callable[[Path], Job]
    expected: Mapping[str, int] = field(default_factory=dict)

    def begun(self, lines: int) -> Case:
        """Return the same job over so many lines in all, the first of each file."""
        of_each = lines // len(self.files)
        return replace(self, files={name: all_lines[:of_each] for name, all_lines in self.files.items()}, expected={})

    def lay_out(self, directory: Path) -> None:
        """Write the input files."""
        for name, lines in self.files.items():
            path = directory / "in" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            data = b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines)
            path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
        (directory / "out").mkdir(exist_ok=True)


def outputs(directory: Path) -> dict[str, Counter[str]]:
    """Return every row written below ``directory/out``, per sink directory; paths in it are made relative.

    What is written to a directory ``table…`` is a changelog with the column ``change``: of that the rows that are there in
    the end. How many changes there are on the way depends on batches.
    """
    found: dict[str, Counter[str]] = {}
    for sink in sorted((directory / "out").iterdir()):
        rows: Counter[str] = Counter()
        for part in sorted(sink.iterdir()):
            if part.name.startswith(("_", ".")):
                continue
            rows.update(_lines(part, str(directory)))
        found[sink.name] = _in_the_end(rows) if sink.name.startswith("table") else rows
    return found


def _in_the_end(changes: Counter[str]) -> Counter[str]:
    """Return the rows that a changelog comes to. The order of changes does not matter for that, their number does."""
    table: Counter[str] = Counter()
    for line, count in changes.items():
        row = json.loads(line)
        adds = row.pop("change") in ("insert", "update_after")
        table[json.dumps(row, sort_keys=True)] += count if adds else -count
    taken = {row: count for row, count in table.items() if count < 0}
    assert not taken, f"rows are taken back more often than they were given: {taken}"
    return +table


def _lines(part: Path, directory: str) -> list[str]:
    if part.suffix == ".parquet":
        import polars as pl

        rows = pl.read_parquet(part).to_dicts()
        return [json.dumps(row, default=str, sort_keys=True) for row in rows]
    return [line.replace(directory + "/", "") for line in part.read_text().splitlines()]


def differences(left: Mapping[str, Counter[str]], right: Mapping[str, Counter[str]]) -> list[str]:
    """Return what one output has that the other has not, as lines to read; empty when they are equal."""
    lines = []
    for sink in sorted({*left, *right}):
        ours, theirs = left.get(sink, Counter()), right.get(sink, Counter())
        for sign, missing in (("-", theirs - ours), ("+", ours - theirs)):
            lines += [f"{sign} {sink} ×{count}: {row[:300]}" for row, count in sorted(missing.items())[:5]]
    return lines
