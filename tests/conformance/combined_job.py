"""Merged jobs over one source, stateless and keyed, with bad records: what worker processes, shards and restarts must not change."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace as hr

SCHEMA = {"k": "string", "n": "int64", "f": "int64"}
_BAD_EVERY = 97


@dataclass(frozen=True)
class CombinedJob:
    """Two files of records, and a directory that stays empty; two jobs over both of them. ``keys``: how many there are."""

    place: Path
    keys: int

    def write(self, first: int, last: int) -> None:
        """Add records to both files."""
        (self.place / "input").mkdir(parents=True, exist_ok=True)
        (self.place / "silent").mkdir(exist_ok=True)
        (self.place / "silent" / "0.ndjson").touch()
        for number in range(2):
            chosen = random.Random(number * 7 + first)
            with (self.place / "input" / f"{number}.ndjson").open("ab") as file:
                for n in range(first, last):
                    record = {"k": f"user-{chosen.randrange(self.keys)}", "n": n, "f": number}
                    bad = n % _BAD_EVERY == 5
                    file.write(b"not json\n" if bad else json.dumps(record).encode() + b"\n")

    def job(self) -> hr.Job:
        """Build the jobs, merged."""
        place = hr.stream("combined", "jobs")
        files = [str(self.place / name / "*.ndjson") for name in ("input", "silent")]
        first, second = (place.from_file(each, format="json", schema=SCHEMA) for each in files)
        rows = first.union(second).dead_letters(lambda bad: bad.to_file(str(self.place / "bad"), format="json"))
        kept = rows.where("n % 3 <> 0").select("n", "f").to_file(str(self.place / "kept"), format="json")
        table = {"database": str(self.place / "counted.db"), "table": "counted", "create_table": True}
        counted = rows.key_by("k").agg(c="count(*)", t="sum(n)", m="max(n)")
        return hr.job(kept, counted.to_sqlite(**table, mode="upsert", key=["k"]))

    def kept(self) -> int:
        """Return how many rows the files of the first job have."""
        return sum(self._lines("kept").values())

    def outputs(self) -> dict[str, Any]:
        """Return the rows of both jobs, and how many records were bad."""
        with sqlite3.connect(self.place / "counted.db") as database:
            counted = sorted(database.execute("SELECT k, c, t, m FROM counted").fetchall())
        return {"kept": self._lines("kept"), "counted": counted, "bad": sum(self._lines("bad").values())}

    def wanted(self, last: int) -> dict[str, Any]:
        """Return what records up to ``last`` must give, by a plain loop."""
        kept: Counter[str] = Counter()
        counted: dict[str, tuple[int, int, int]] = {}
        lines = [line for path in (self.place / "input").iterdir() for line in path.read_text().splitlines()]
        assert len(lines) == 2 * last
        bad = 0
        for line in lines:
            if line == "not json":
                bad += 1
                continue
            row = json.loads(line)
            if row["n"] % 3:
                kept[json.dumps({"n": row["n"], "f": row["f"]}, separators=(",", ":"))] += 1
            c, t, m = counted.get(row["k"], (0, 0, 0))
            counted[row["k"]] = (c + 1, t + row["n"], max(m, row["n"]))
        return {"kept": kept, "counted": sorted((k, *values) for k, values in counted.items()), "bad": bad}

    def _lines(self, name: str) -> Counter[str]:
        paths = [path for path in sorted((self.place / name).rglob("*.json")) if "_headrace" not in path.parts]
        return Counter(line for path in paths for line in path.read_text().splitlines())
