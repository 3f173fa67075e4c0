"""Cases of sources whose rows change: a record gives several rows or none, changes come twice or lack their old rows."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import headrace as hr

from tests.conformance.case import Case

SCHEMA = {"id": "int64", "who": "string", "n": "int64"}
Row = dict[str, Any]
Change = tuple[Row | None, Row | None]


def history(count: int, seed: int, *, first: int = 0) -> list[Change]:
    """Return changes of a table as (old row, new row): None where there is no such row."""
    chance = random.Random(seed)
    table: dict[int, Row] = {}
    changes: list[Change] = []
    while len(changes) < count:
        id = first + chance.randrange(20)
        old = table.get(id)
        if old is not None and chance.random() < 0.25:
            changes.append((table.pop(id), None))
            continue
        new = {
            "id": id,
            "who": None if chance.random() < 0.1 else f"w{chance.randrange(6)}",
            "n": None if chance.random() < 0.1 else chance.randrange(100),
        }
        table[id] = new
        changes.append((old, new))
    return changes


def debezium(changes: Sequence[Change], *, before: bool = True) -> Iterator[str]:
    """Every tenth record is a tombstone, and some are damaged."""
    for number, (old, new) in enumerate(changes):
        operation = "c" if old is None else "d" if new is None else "u"
        shown = old if before else {"id": old["id"]} if new is None and old is not None else None
        yield json.dumps({"before": shown, "after": new, "op": operation, "source": {"table": f"t{number % 3}"}})
        if number % 10 == 3:
            yield ""
        if number % 25 == 7:
            yield '{"op": "u", "before": null'


def canal(changes: Sequence[Change]) -> Iterator[str]:
    """Neighbours of one kind are in one body; now and then a body comes again, and so do the ones before it."""
    chance = random.Random(5)
    bodies: list[str] = []
    at = 0
    while at < len(changes):
        kind = _kind(changes[at])
        end = at + 1
        while end < len(changes) and _kind(changes[end]) == kind and end - at < 3:
            end += 1
        part = changes[at:end]
        body: Row = {"type": kind, "data": [_texts(new or old or {}) for old, new in part], "old": None}
        if kind == "UPDATE":
            body["old"] = [_texts({k: v for k, v in (old or {}).items() if v != (new or {})[k]}) for old, new in part]
        bodies.append(json.dumps(body))
        at = end
        yield bodies[-1]
        if chance.random() < 0.1:
            yield from bodies[-3:]


def _kind(change: Change) -> str:
    old, new = change
    return "INSERT" if old is None else "DELETE" if new is None else "UPDATE"


def _texts(row: Row) -> Row:
    return {name: None if value is None else str(value) for name, value in row.items()}


def _read(directory: Path, pipeline: str, pattern: str, format: str, **options: Any) -> hr.Stream:
    pipe = hr.stream("conformance", pipeline)
    return pipe.from_file(f"{directory}/in/{pattern}", format=format, schema=SCHEMA, **options)


def _to_table(stream: hr.Stream, directory: Path, name: str = "table") -> hr.Job:
    written: hr.Job = stream.to_file(f"{directory}/out/{name}", format="json", changes="column", name=name)
    return written


def without_state(directory: Path) -> hr.Job:
    """Every change as it came, through verbs that work on single rows, also written as changes again."""
    changes = _read(directory, "changes-plain", "debezium*.ndjson", "debezium-json", metadata={"of": "source.table"})
    busy = changes.where("n > 20 OR n IS NULL").with_columns(twice="n * 2")
    split = changes.split(few="n < 50")
    both = split.few.select("id", "n").union(split.rest.select("id", "n"))
    job = _to_table(busy, directory, "rows").also(_to_table(both, directory, "rows-of-both"))
    return job.also(busy.to_file(f"{directory}/out/maxwell", format="maxwell-json", name="maxwell"))


def aggregated(directory: Path) -> hr.Job:
    """Aggregates, Top-N and a join over a changelog with its old rows."""
    changes = _read(directory, "changes-agg", "debezium*.ndjson", "debezium-json", key="id")
    sums = changes.key_by("who").agg(n="count(*)", s="sum(n)", hi="max(n)", ids="count(distinct id)")
    best = changes.key_by("who").top_n(2, by="n desc, id", rank="place")
    joined = changes.join(sums, on="who", how="left", suffix="_of_who")
    return (
        _to_table(sums, directory, "table-of-sums")
        .also(_to_table(best, directory, "table-of-best"))
        .also(_to_table(joined, directory, "table-of-joined"))
    )


def normalized(directory: Path) -> hr.Job:
    """Changes that come again, in bodies of several rows."""
    changes = _read(directory, "changes-again", "canal*.ndjson", "canal-json", key=["id"], repeats=True)
    counts = changes.key_by("who").agg(n="count(*)", s="sum(n)")
    return _to_table(changes, directory).also(_to_table(counts, directory, "table-of-counts"))


def without_old_rows(directory: Path) -> hr.Job:
    """Updates that have only the new row, deletes that have only the key, and metadata, which no old row has."""
    changes = _read(
        directory, "changes-upserts", "half*.ndjson", "debezium-json", key="id", changelog_mode="upsert",
        metadata={"at": "offset"},
    )  # fmt: skip
    counts = changes.where("n > 30").key_by("who").agg(n="count(*)", s="sum(n)", last="max(at)")
    return _to_table(changes.drop("at"), directory).also(_to_table(counts, directory, "table-of-counts"))


def timed(count: int, seed: int) -> Iterator[str]:
    """Yield debezium bodies of rows with times that move on: an old row may be in a window that is open, or long closed."""
    shown: dict[int, Row] = {}
    for number, (old, new) in enumerate(history(count, seed)):
        key = (new or old or {})["id"]
        before = None if old is None else shown.pop(key)
        after = None
        if new is not None:
            # Some fall behind the watermark.
            second = number // 4 - (9 if number % 17 == 5 else number % 3)
            after = shown[key] = {**new, "ts": f"2024-03-01 10:{10 + second // 60:02d}:{second % 60:02d}"}
        operation = "c" if before is None else "d" if after is None else "u"
        yield json.dumps({"before": before, "after": after, "op": operation})


def in_windows(directory: Path) -> hr.Job:
    """Windows over a changelog: what can be subtracted, what is made anew of the rows that are left, and sessions."""
    changes = hr.stream("conformance", "changes-windows").from_file(
        f"{directory}/in/timed.ndjson", format="debezium-json", key="id", schema={**SCHEMA, "ts": "timestamp"}
    )
    keyed = changes.key_by("who")
    counted = keyed.window(hr.tumbling("10 s", on="ts"), late="3 s").agg(n="count(*)", s="sum(n)")
    kept = keyed.window(hr.sliding("20 s", "10 s", on="ts"), late="3 s").agg(hi="max(n)", ids="count(distinct id)")
    sessions = keyed.window(hr.session("6 s", on="ts"), late="3 s").agg(n="count(*)", lo="min(n)")
    jobs = [each.to_file(f"{directory}/out/{name}", format="json", name=name)
            for name, each in (("counted", counted), ("kept", kept), ("sessions", sessions))]  # fmt: skip
    job: hr.Job = jobs[0].also(*jobs[1:])
    return job


def _files(name: str, lines: Any, **options: Any) -> Mapping[str, Sequence[str | bytes]]:
    # Each file is a queue, which has the changes of its own keys.
    return {f"{name}-{n}.ndjson": list(lines(history(120, n, first=n * 100), **options)) for n in range(2)}


CASES = [
    Case("changes-without-state", _files("debezium", debezium), without_state),
    Case("changes-aggregated", _files("debezium", debezium), aggregated),
    Case("changes-that-come-again", _files("canal", canal), normalized),
    Case("changes-without-old-rows", _files("half", debezium, before=False), without_old_rows),
    # One queue: which rows are late depends on the order in which several are read.
    Case("changes-in-windows", {"timed.ndjson": list(timed(500, 11))}, in_windows),
]
