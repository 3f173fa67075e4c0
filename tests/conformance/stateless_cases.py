"""Cases of stateless jobs: every verb, every format, bad records, several sources and sinks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl

from tests.conformance.case import Case

SCHEMA = {"id": "int64", "name": "string", "score": "float64", "tags": "array<string>", "at": "timestamp"}
NAMES = ["Ada", "Grace", "Łukasz", "Zoë\nNewline", "O'Neil", "", "naïve ☂", "%_\\"]


def people(count: int, first: int = 0) -> list[str]:
    """Rows with NULLs, missing keys, Unicode, and texts that tempt LIKE."""
    lines = []
    for number in range(first, first + count):
        row: dict[str, Any] = {
            "id": number,
            "name": None if number % 11 == 3 else NAMES[number % len(NAMES)],
            "score": None if number % 7 == 5 else number * 1.25 - 40,
            "tags": [f"t{k}" for k in range(number % 4)],
            "at": f"2026-03-{1 + number % 28:02d}T{number % 24:02d}:00:00.{number % 1000:03d}Z",
        }
        if number % 13 == 1:
            del row["score"]
        lines.append(json.dumps(row, ensure_ascii=bool(number % 2)))
    return lines


def _people(directory: Path, pipeline: str, pattern: str = "*.ndjson", **options: Any) -> hr.Stream:
    pipe = hr.stream("conformance", pipeline, **options)
    return pipe.from_file(f"{directory}/in/{pattern}", format="json", schema=SCHEMA)


def _to(stream: hr.Stream, directory: Path, name: str = "rows", **options: Any) -> hr.Job:
    return _file(stream.dead_letters(lambda bad: _file(bad, directory, "dead")), directory, name, **options)


def _file(stream: hr.Stream, directory: Path, name: str, **options: Any) -> hr.Job:
    written: hr.Job = stream.to_file(f"{directory}/out/{name}", **{"format": "json", **options})
    return written


def _two_files(count: int = 150) -> dict[str, Sequence[str | bytes]]:
    return {"a.ndjson": people(count), "b.ndjson": people(count, 1000)}


def add_length(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "length": len(row["name"])}  # NULL names raise: they belong in the dead letters


def explode(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for place, tag in enumerate(row["tags"] or []):
        yield {"id": row["id"], "place": place, "tag": tag}


def mixed(row: dict[str, Any]) -> dict[str, Any] | None:
    """Rows of different shapes and types, and some dropped."""
    number = row["id"]
    if number % 5 == 0:
        return None
    value: Any = number if number % 3 == 0 else number / 2 if number % 3 == 1 else str(number)
    return {"id": number, "value": value, **({"extra": [number]} if number % 4 == 0 else {})}


def double_score(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select("id", (pl.col("score") * 2).alias("score"))


@hr.udf(vectorized=True, returns="string")
def shout(name: pl.Series) -> pl.Series:
    return name.str.to_uppercase() + "!"


@hr.udf
def initial(name: str | None) -> str | None:
    return None if name is None else name[0]  # "" raises: the row goes to the dead letters


def _union_of_branches(directory: Path) -> hr.Job:
    parts = _people(directory, "branches").split(low="score < 0", high="score > 50")
    low = parts.low.select("id", kind="'low'")
    high = parts.high.flat_map(
        lambda row: [{"id": row["id"], "kind": "high"}] * 2, schema={"id": "int64", "kind": "string"}
    )
    rest = parts.rest.select("id", kind="'rest'")
    again = _people_branch_twice(parts)
    return _to(low.union(high, rest, again), directory)


def _people_branch_twice(parts: Any) -> hr.Stream:
    again: hr.Stream = parts.low.select("id", kind="'low again'")
    return again


def _several_sinks(directory: Path) -> hr.Job:
    people_stream = _people(directory, "sinks").dead_letters(lambda bad: _file(bad, directory, "dead"))
    parts = people_stream.split(named="name IS NOT NULL")
    return hr.job(
        _file(parts.named.select("id", "name"), directory, "named"),
        _file(parts.rest.select("id"), directory, "unnamed"),
        _file(people_stream.select("id", "score"), directory, "parquet", format="parquet"),
    )


def _two_sources(directory: Path) -> hr.Job:
    pipe = hr.stream("conformance", "two-sources")
    left = pipe.from_file(f"{directory}/in/a.ndjson", format="json", schema=SCHEMA, name="left").select(
        "id", side="'l'"
    )
    right = pipe.from_file(f"{directory}/in/b.ndjson", format="json", schema=SCHEMA, name="right").select(
        "id", side="'r'"
    )
    return _to(left.union(right), directory)


def _metadata(directory: Path) -> hr.Job:
    pipe = hr.stream("conformance", "metadata")
    source = pipe.from_file(
        f"{directory}/in/*.ndjson",
        format="json",
        schema={"id": "int64"},
        metadata={"line": "offset", "source": "source"},
    )
    return _to(source.where("line % 10 = 0"), directory)


def _csv(directory: Path) -> hr.Job:
    pipe = hr.stream("conformance", "csv")
    source = pipe.from_file(
        f"{directory}/in/*.csv",
        format="csv",
        header=True,
        schema={"id": "int64", "name": "string", "price": "decimal(10, 2)"},
    )
    return _to(source.where("price > 5 OR price IS NULL").with_columns(total="price * 2"), directory)


def _csv_lines() -> list[str]:
    lines = ["id,name,price"]
    for number in range(120):
        name = (
            f'"quoted, ""{number}"""'
            if number % 5 == 0
            else f'"two\nlines {number}"'
            if number % 7 == 0
            else f"n{number}"
        )
        lines.append(f"{number},{name},{'' if number % 9 == 0 else f'{number / 8:.2f}'}")
    return [*lines, "not a number,x,1.00", "1,too,2.00,many"]


def _raw(directory: Path) -> hr.Job:
    pipe = hr.stream("conformance", "raw")
    source = pipe.from_file(
        f"{directory}/in/*.log",
        format="raw",
        pattern=r'^(?P<ip>\S+) "(?P<method>[A-Z]+) (?P<path>\S+)" (?P<status>\d{3})$',
        schema={"ip": "string", "method": "string", "path": "string", "status": "int64"},
    )
    return _to(source.where("status >= 400 AND path NOT LIKE '/health%'"), directory)


def _raw_lines() -> list[str | bytes]:
    lines: list[str | bytes] = [
        f'10.0.0.{n % 250} "{"GET" if n % 3 else "POST"} /{"health" if n % 4 == 0 else "item"}/{n}" {200 + 100 * (n % 4)}'
        for n in range(200)
    ]
    return [*lines, "no log line", b'10.0.0.1 "GET /\xff\xfe" 500']


RULES = [
    {
        "id": "ada",
        "expression": "lower(name) LIKE '%ada%' OR name LIKE 'Z%\nNew%'",
        "severity": "high",
        "labels": ["names"],
    },
    {"id": "percent", "expression": "name = '%_\\' AND score > 0", "labels": ["names", "odd"]},
    {"id": "umbrella", "expression": "name RLIKE '(?i)NAÏVE ☂$' AND NOT score > 50", "severity": "low"},
    {"id": "ids", "expression": "id IN (3, 7, 1011)", "severity": "critical"},
    {"id": "missing", "expression": "name IS NULL AND at < '2026-03-10'"},
    {"id": "fails", "expression": "name LIKE '%a%' AND CAST(name AS int) > 1"},
]


def _rules_of_several(d: Path) -> hr.Job:
    """Rules, other rules and conditions over one stream: one engine for all of them."""
    people_stream = _people(d, "rules-of-several").dead_letters(lambda bad: _file(bad, d, "dead"))
    return hr.job(
        _file(people_stream.rules(RULES[:5]), d, "matches"),
        _file(people_stream.rules(RULES[3:], output="first"), d, "first"),
        _file(people_stream.where(" OR ".join(f"name LIKE '%{part}%'" for part in
                                              ("Gr", "ce", "uk", "Neil", "☂", "_", "xx", "yy", "zz"))), d, "where"),
    )  # fmt: skip


BAD_LINES: list[str | bytes] = [
    '{"id": 1, "name": "good"}', "{broken", '{"id": "text"}', "[1, 2]", b'{"id": 2, "name": "\xff"}', '{"id": 3}',
    '{"id": 1e400}', '{"id": 4, "name": "\\ud83d\\ude00"}', "null", '{"id": 9223372036854775808}', '{"id": 5, "id": 6}',
    '{"id": 7, "at": "yesterday"}', '{"id": 8, "tags": ["a", 1]}', '{"id": 9, "score": "1"}', '{"id": 10}',
]  # fmt: skip

CASES = [
    Case("where", _two_files(), lambda d: _to(_people(d, "where").where(
        "(lower(name) LIKE '%a%' OR score > 100) AND NOT (score BETWEEN 0 AND 10) AND id NOT IN (4, 6, 8)"
    ), d)),
    Case("null-logic", _two_files(), lambda d: _to(_people(d, "null-logic").select(
        "id", a="score > 0 AND name = 'Ada'", b="score IS DISTINCT FROM 10", c="name IN ('Ada', NULL)", e="NOT (score > 0)"
    ), d), {"rows": 300}),
    Case("select", _two_files(), lambda d: _to(_people(d, "select").select(
        "id", "at", upper_name="upper(name)", kind="CASE WHEN score < 0 THEN 'neg' WHEN score IS NULL THEN '?' ELSE 'pos' END",
        first_tag="tags[1]", text="CAST(score AS STRING) || '/' || name"
    ), d), {"rows": 300}),
    Case("columns", _two_files(), lambda d: _to(
        _people(d, "columns").with_columns(half="score / 2", id="id + 1").drop("tags").rename(name="who"), d
    ), {"rows": 300}),
    Case("map-untyped", _two_files(), lambda d: _to(_people(d, "map-untyped").map(add_length).where("length > 4"), d)),
    Case("map-shapes", _two_files(), lambda d: _to(_people(d, "map-shapes").map(mixed), d), {"rows": 240}),
    Case("map-shapes-typed", _two_files(), lambda d: _to(
        _people(d, "map-shapes-typed").map(mixed).where("value > 10").select("id", twice="value * 2"), d
    )),
    Case("map-typed", _two_files(), lambda d: _to(
        _people(d, "map-typed").map(lambda row: {"id": row["id"], "n": len(row["name"] or "")},
                                    schema={"id": "int64", "n": "int32"}).where("n > 3"), d
    )),
    Case("flat-map", _two_files(), lambda d: _to(
        _people(d, "flat-map").flat_map(explode, schema={"id": "int64", "place": "int64", "tag": "string"})
        .flat_map(lambda row: [row] * (row["place"] + 1)), d
    )),
    Case("filter", _two_files(), lambda d: _to(_people(d, "filter").filter(lambda row: row["score"] > 10), d)),
    Case("map-batches", _two_files(), lambda d: _to(
        _people(d, "map-batches").select("id", "score").map_batches(double_score), d), {"rows": 300}),
    Case("script", _two_files(), lambda d: _to(_people(d, "script").script("""
        grade = CASE WHEN score > 50 THEN 'A' ELSE 'B' END;
        IF grade = 'A' AND name IS NOT NULL THEN bonus = score * 2; name = upper(name);
        ELSEIF score < 0 THEN bonus = 0; ELSE name = 'none'; END;
        WHERE id % 3 <> 0; DROP tags;
    """), d), {"rows": 200}),
    Case("functions", _two_files(), lambda d: _to(
        _people(d, "functions").select("id", loud="shout(name)", first="initial(name)"), d)),
    Case("union-of-branches", _two_files(), _union_of_branches),
    Case("two-sources", _two_files(), _two_sources, {"rows": 300}),
    Case("several-sinks", _two_files(), _several_sinks, {"parquet": 300}),
    Case("metadata", _two_files(), _metadata, {"rows": 30}),
    Case("bad-records", {"a.ndjson": [*people(40), *BAD_LINES, *people(40, 100)], "b.ndjson": BAD_LINES},
         lambda d: _to(_people(d, "bad-records").with_columns(n="id + 1"), d)),
    Case("csv", {"a.csv": _csv_lines()}, _csv),
    Case("raw", {"a.log": _raw_lines()}, _raw),
    Case("rules", _two_files(), lambda d: _to(_people(d, "rules").rules(RULES), d)),
    Case("rules-first", _two_files(), lambda d: _to(_people(d, "rules-first").rules(RULES, output="first"), d)),
    Case("rules-tag", _two_files(), lambda d: _to(_people(d, "rules-tag").rules(RULES, output="tag"), d), {"rows": 300}),
    Case("rules-of-several", _two_files(), _rules_of_several),
    Case("many-files", {**{f"f{n:02d}.ndjson": people(20 + n, 100 * n) for n in range(16)}, "empty.ndjson": [],
                        "packed.ndjson.gz": people(60, 9000)},
         lambda d: _to(_people(d, "many-files", "*.ndjson*").where("score > 0"), d)),
]  # fmt: skip
