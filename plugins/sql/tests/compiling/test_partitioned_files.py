"""PARTITIONED BY for files: directories of partitions, read and written; INSERT OVERWRITE of one of them."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import ExpressionError
from headrace_sql import SqlSession

_TABLES = """CREATE TABLE src (id INT, day DATE, k STRING) WITH ('connector' = 'filesystem', 'path' = '{0}/in.ndjson', 'format' = 'json');
CREATE TABLE p (day DATE, id INT, k STRING) PARTITIONED BY (day, k)
  WITH ('connector' = 'filesystem', 'path' = '{0}/out', 'format' = '{1}');
"""
ROWS = [(1, "2024-01-31", "a b"), (2, "2024-01-31", "x/y=1+%"), (3, "2024-02-01", "a b"), (4, None, None)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    give(tmp_path, ROWS)
    (tmp_path / "out").mkdir()
    return tmp_path


def give(place: Path, rows: list[tuple[Any, ...]], mode: str = "w") -> None:
    with (place / "in.ndjson").open(mode, encoding="utf-8") as file:
        file.writelines(json.dumps(dict(zip(("id", "day", "k"), row, strict=True))) + "\n" for row in rows)


def run(place: Path, text: str, format: str = "json", **options: Any) -> None:
    job = hr.sql(_TABLES.format(place, format) + text, session=SqlSession())
    job.run("light", show_progress=False, **options)


def rows_of(place: Path, query: str = "SELECT id, CAST(day AS STRING), k FROM p") -> list[tuple[Any, ...]]:
    return sorted(hr.sql(_TABLES.format(place, "json") + query, session=SqlSession()).collect().rows(), key=repr)


def test_what_is_written_is_read_back(place: Path) -> None:
    run(place, "INSERT INTO p SELECT day, id, k FROM src")
    folders = sorted(str(part.parent.relative_to(place / "out")) for part in place.glob("out/*/*/part*"))
    assert folders == [
        "day=2024-01-31/k=a b",
        "day=2024-01-31/k=x%2Fy%3D1+%25",
        "day=2024-02-01/k=a b",
        "day=__DEFAULT_PARTITION__/k=__DEFAULT_PARTITION__",
    ]
    texts = [part.read_text() for part in place.glob("out/day=2024-02-01/*/part*")]
    assert texts == ['{"id":3}\n']
    assert rows_of(place) == sorted(ROWS, key=repr)
    assert rows_of(place, "SELECT id FROM p WHERE day = DATE '2024-01-31' AND k LIKE 'a%'") == [(1,)]


def test_a_partition_that_is_given(place: Path) -> None:
    run(place, "INSERT INTO p PARTITION (day = '2024-03-01') SELECT id, k FROM src WHERE id < 3")
    assert rows_of(place) == [(1, "2024-03-01", "a b"), (2, "2024-03-01", "x/y=1+%")]


def test_new_partitions_are_found_and_a_job_goes_on(place: Path) -> None:
    text, options = "INSERT INTO p SELECT day, id, k FROM src", {"checkpoint": str(place / "checkpoint")}
    run(place, text, **options)
    copied = f"""CREATE TABLE copy (id INT) WITH ('connector' = 'filesystem', 'path' = '{place}/copy', 'format' = 'json');
      INSERT INTO copy SELECT id FROM p"""
    run(place, copied, checkpoint=str(place / "second"))
    give(place, [(5, "2024-02-01", "a b"), (6, "2024-05-05", "z")], mode="a")
    run(place, text, **options)
    run(place, copied, checkpoint=str(place / "second"))
    lines = [json.loads(line)["id"] for part in place.glob("copy/part*") for line in part.read_text().splitlines()]
    assert sorted(lines) == [1, 2, 3, 4, 5, 6]


def test_overwriting_replaces_one_partition(place: Path) -> None:
    run(place, "INSERT INTO p SELECT day, id, k FROM src")
    text = "INSERT OVERWRITE p PARTITION (k = 'a b', day = '2024-01-31') SELECT id * 10 FROM src WHERE id <= {}"
    others = [row for row in ROWS if row[0] != 1]
    for most, wanted in ((2, [10, 20]), (2, [10, 20]), (1, [10])):
        run(place, text.format(most))
        assert rows_of(place) == sorted([*others, *((n, "2024-01-31", "a b") for n in wanted)], key=repr)


def test_overwriting_goes_on_from_a_checkpoint(place: Path) -> None:
    options = {"checkpoint": str(place / "checkpoint")}
    text = "INSERT OVERWRITE p PARTITION (day = '2024-01-31', k = 'q') SELECT id FROM src"
    run(place, text, **options)
    give(place, [(9, None, None)], mode="a")
    run(place, text, **options)
    assert [row[0] for row in rows_of(place)] == [1, 2, 3, 4, 9]


def test_rows_of_an_overwritten_partition_do_not_count_for_later_inserts(place: Path) -> None:
    run(place, "INSERT OVERWRITE p PARTITION (day = '2024-01-31', k = 'a b') SELECT id * 10 FROM src")
    run(place, "INSERT INTO p SELECT day, id, k FROM src")
    overwritten = [(row[0] * 10, "2024-01-31", "a b") for row in ROWS]
    assert rows_of(place) == sorted([*ROWS, *overwritten], key=repr)


def test_values_that_share_or_would_hide_a_directory(place: Path) -> None:
    rows = [
        (1, None, None),
        (2, None, ""),
        (3, None, "__DEFAULT_PARTITION__"),
        (4, "2024-01-31", "x.tmp"),
        (5, None, "日本é"),
    ]
    give(place, rows)
    run(place, "INSERT INTO p SELECT day, id, k FROM src")
    wanted = [(n, None, None) for n in (1, 2, 3)] + rows[3:]
    assert rows_of(place) == sorted(wanted, key=repr)


@pytest.mark.parametrize("name", ["_k", ".k", "größe", "my k", "a=b", "k.tmp", "a+b (c)"])
def test_columns_with_special_names(place: Path, name: str) -> None:
    tables = _TABLES.replace("PARTITIONED BY (day, k)", f"PARTITIONED BY (`{name}`)").replace(
        "id INT, k STRING) P", f"id INT, `{name}` STRING) P"
    )
    text = tables.format(place, "json")
    hr.sql(text + "INSERT INTO p SELECT day, id, k FROM src", session=SqlSession()).run("light", show_progress=False)
    read = hr.sql(text + f"SELECT id, CAST(day AS STRING), `{name}` FROM p", session=SqlSession()).collect()
    assert sorted(read.rows()) == sorted(ROWS)


def test_directories_of_others_are_read(place: Path) -> None:
    """NULL as Hive and Spark write it; a table that lies in a partition itself; %XX in small letters."""
    folder = place / "out" / "day=2000-01-01" / "day=__HIVE_DEFAULT_PARTITION__" / "k=a%2fb"
    folder.mkdir(parents=True)
    (folder / "x.json").write_text('{"id":1}\n')
    tables = _TABLES.replace("{0}/out", "{0}/out/day=2000-01-01").format(place, "json")
    read = hr.sql(tables + "SELECT id, CAST(day AS STRING), k FROM p", session=SqlSession()).collect()
    assert read.rows() == [(1, None, "a/b")]


@pytest.mark.parametrize(
    ("insert", "message"),
    [
        ("INSERT OVERWRITE p SELECT day, id, k FROM src", "no value is given for day, k"),
        ("INSERT OVERWRITE p PARTITION (day = '2024-01-31') SELECT id, k FROM src", "no value is given for k"),
    ],
)
def test_a_partition_must_be_told_as_a_whole(place: Path, insert: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        run(place, insert)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_writes_and_overwrites_partitions(place: Path) -> None:
    for text in (
        "INSERT INTO p SELECT day, id, k FROM src",
        "INSERT OVERWRITE p PARTITION (day = '2024-01-31', k = 'a b') SELECT id * 10 FROM src WHERE id < 3",
    ):
        job = hr.sql(_TABLES.format(place, "json") + text, session=SqlSession())
        job.run("spark", show_progress=False, master="local[2]")
    wanted = [row for row in ROWS if row[0] != 1] + [(10, "2024-01-31", "a b"), (20, "2024-01-31", "a b")]
    assert rows_of(place) == sorted(wanted, key=repr)


@pytest.mark.parametrize("connector", ["filesystem", "file"])
@pytest.mark.parametrize("options", ["", ", 'header' = 'true'"])
def test_a_table_of_csv_reads_what_it_has_written(place: Path, connector: str, options: str) -> None:
    table = f"CREATE TABLE t (id INT, k STRING) WITH ('connector' = '{connector}', 'path' = 'csv', 'format' = 'csv'{options});"
    job = hr.sql(f"{table} INSERT INTO t VALUES (1, 'a'), (2, 'id')", session=SqlSession())
    job.run("light", show_progress=False)
    written = "".join(each.read_text() for each in (place / "csv").glob("part-*"))
    assert written == ("id,k\n" if options else "") + "1,a\n2,id\n"
    read = hr.sql(
        f"{table} CREATE TABLE o (id INT, k STRING) WITH ('connector' = 'blackhole'); INSERT INTO o SELECT * FROM t",
        session=SqlSession(),
    )
    report = read.run("light", show_progress=False)
    assert (report.records_read, report.dead_letters) == (2, 0)
