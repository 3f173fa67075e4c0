"""Columns of csv by the names in each file's header: whatever their order is, wherever reading begins, in whichever process."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from file_world import NO_WAIT, World, checkpointed, drain
from headrace.flow.messages import RawBatch
from headrace.foundation.errors import BrokenQueueError
from headrace.interfaces.codec import Codec
from headrace.interfaces.registry import default_registry
from headrace_file.reader import FileReader
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

SCHEMA = hr.Schema({"host": pl.String(), "n": pl.Int64()})
BY_NAME: dict[str, Any] = {"header": True, "columns_by": "header", "format": "csv"}


def codec(**options: Any) -> Codec:
    made = default_registry().find("codec", "csv")
    return made(made.Settings.of(options, plugin="csv"))  # type: ignore[no-any-return]


def rows(reader: FileReader, at_most: int | None = None) -> list[Any]:
    """Return the rows that a reader gives, and in their places the reasons of bad records."""
    decoder = codec().decoder(SCHEMA)
    found: list[Any] = []
    while at_most is None or len(found) < at_most:
        raw: RawBatch | None = reader.poll(1000 if at_most is None else 1, NO_WAIT)
        if raw is None:
            break
        decoded = decoder.decode_records(raw)
        found += decoded.frame.rows()
        found += [bad.reason for bad in decoded.bad]
    return found


class Source:
    def __init__(self, directory: Path) -> None:
        self.world = World(directory)

    def open(self, name: str = "log", start: Any = None, **options: Any) -> FileReader:
        source = self.world.source(name, **{**BY_NAME, **options})
        source.use_format("csv", codec(), SCHEMA)
        source.check()
        given = {} if start is None else {"start": start}
        return self.world.open(source, name, **given)


@pytest.fixture
def files(tmp_path: Path) -> Any:
    made = Source(tmp_path)
    yield made
    made.world.close()


def test_the_order_of_a_file_does_not_matter(files: Source) -> None:
    files.world.write("log", b"n,other,host\n1,x,a\n2,,b\n")
    assert rows(files.open()) == [("a", 1), ("b", 2)]


def test_names_are_quoted_or_have_blanks_around_them_or_a_byte_order_mark_before(files: Source) -> None:
    files.world.write("log", b'\xef\xbb\xbf"n","a\nb", host \r\n1,x,a\r\n')
    assert rows(files.open()) == [("a", 1)]


def test_a_record_has_as_many_fields_as_the_header(files: Source) -> None:
    files.world.write("log", b"n,other,host\n1,a\n2,x,b\nx,y,c\n")
    assert rows(files.open()) == [
        ("b", 2),
        "expected 3 fields, found 2",
        "column 'n' (field 1): expected int64, found \"x\"",
    ]


def test_reading_begins_in_the_middle(files: Source) -> None:
    files.world.write("log", b"n,host\n1,a\n2,b\n3,c\n")
    reader = files.open()
    assert rows(reader, 1) == [("a", 1)]
    assert rows(files.open(start=checkpointed(reader.position))) == [("b", 2), ("c", 3)]


@pytest.mark.parametrize("kind", ["gzip", "zip"])
def test_reading_begins_in_the_middle_of_a_compressed_file(files: Source, kind: str) -> None:
    import io
    import zipfile

    text = b"n,host\n1,a\n2,b\n3,c\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("one", text)
    files.world.write("log", gzip.compress(text) if kind == "gzip" else packed.getvalue())
    reader = files.open()
    assert rows(reader, 2) == [("a", 1), ("b", 2)]
    assert rows(files.open(start=checkpointed(reader.position))) == [("c", 3)]


def test_a_long_header_is_read_again_as_a_whole(files: Source) -> None:
    names = ",".join(f"column_{number}" for number in range(3000))
    values = "," * 3000
    files.world.write("log", f"host,{names},n\na{values},1\nb{values},2\n".encode())
    reader = files.open()
    assert rows(reader, 1) == [("a", 1)]
    assert rows(files.open(start=checkpointed(reader.position))) == [("b", 2)]


def test_a_rotated_file_may_have_another_order(files: Source) -> None:
    files.world.write("log", b"n,host\n1,a\n")
    reader = files.open()
    assert rows(reader) == [("a", 1)]
    files.world.path("log").rename(files.world.path("log.1"))
    files.world.write("log", b"host,n,new\nb,2,x\n")
    files.world.quiet()
    assert rows(reader) == [("b", 2)]
    files.world.append("log", b"c,3,y\n")
    assert rows(reader) == [("c", 3)]


def test_a_missing_column_is_an_error_or_null(files: Source) -> None:
    files.world.write("log", b"host,x\na,1\n")
    with pytest.raises(BrokenQueueError, match=r"does not name n; it names host, x") as raised:
        drain(files.open())
    assert "missing_columns='null'" in str(raised.value)
    assert rows(files.open(missing_columns="null")) == [("a", None)]
    files.world.write("log", b"x\n1\n2\n")
    assert rows(files.open(missing_columns="null")) == [(None, None)] * 2


def test_a_column_that_is_named_twice_is_an_error(files: Source) -> None:
    files.world.write("log", b"n,host,n\n1,a,2\n")
    with pytest.raises(BrokenQueueError, match="names n more than once"):
        drain(files.open())


def test_a_job_that_wants_another_column_is_told_in_the_middle_of_a_file(files: Source) -> None:
    files.world.write("log", b"n,host\n1,a\n2,b\n")
    reader = files.open()
    assert rows(reader, 1) == [("a", 1)]
    source = files.world.source("log", **BY_NAME)
    source.use_format("csv", codec(), hr.Schema({"host": pl.String(), "level": pl.String()}))
    later = files.world.open(source, "log", checkpointed(reader.position))
    with pytest.raises(BrokenQueueError, match="does not name level"):
        drain(later)
    assert later.position.offset == reader.position.offset


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"columns_by": "header", "format": "csv"}, "columns_by"),
        ({"columns_by": "header", "header": True, "format": "json"}, "columns_by"),
        ({"missing_columns": "null", "header": True, "format": "csv"}, "missing_columns"),
    ],
)
def test_options_that_are_refused(tmp_path: Path, options: dict[str, Any], option: str) -> None:
    with pytest.raises(hr.OptionError, match=option):
        World(tmp_path).source("log", **options)


def test_the_option_columns_of_csv_is_refused(tmp_path: Path) -> None:
    source = World(tmp_path).source("log", **BY_NAME)
    source.use_format("csv", codec(columns=["host", "n"]), SCHEMA)
    with pytest.raises(hr.OptionError, match="columns_by"):
        source.check()


TEXT = st.text(st.sampled_from('ab,"\n\r é'), max_size=5)


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_any_files_by_header_give_what_they_give_by_order(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """The same rows, written with their columns in any order and others between them; read in pieces from checkpoints."""
    wanted = data.draw(st.lists(st.tuples(TEXT, st.integers(-5, 5)), min_size=1, max_size=8))
    names = data.draw(st.permutations(["host", "n", "é x", "b"]))
    kept = data.draw(st.sampled_from([names, [name for name in names if name != "b"]]))

    def quoted(value: object) -> str:
        return '"' + str(value).replace('"', '""') + '"'

    lines: list[list[Any]] = [kept, *([{"host": host, "n": n}.get(name, "z") for name in kept] for host, n in wanted)]
    text = "".join(",".join(map(quoted, line)) + "\n" for line in lines)
    made = Source(tmp_path_factory.mktemp("header"))
    made.world.write("log", text.encode())
    reader = made.open()
    found: list[Any] = []
    while len(found) < len(wanted):
        found += rows(reader, data.draw(st.integers(1, 3)))
        if data.draw(st.booleans()):
            reader = made.open(start=checkpointed(reader.position))
    assert found == wanted
    made.world.close()


def job_over(directory: Path, **options: Any) -> hr.Job:
    (directory / "in").mkdir()
    (directory / "in" / "a.csv").write_bytes(b"n,host\n" + b"".join(b"%d,a\n" % n for n in range(2000)))
    (directory / "in" / "b.csv.gz").write_bytes(
        gzip.compress(b"x,host,n\n" + b"".join(b",b,%d\n" % n for n in range(100)))
    )
    (directory / "in" / "c.csv").write_bytes(b"host\nc\n")
    (directory / "in" / "d.csv").write_bytes(b"")
    job: hr.Job = (
        hr.stream("test", "by_header")
        .from_file(
            str(directory / "in"), format="csv", header=True, columns_by="header", missing_columns="null",
            read_bytes=1024, schema={"host": "string", "n": "int64"}, **options,
        )
        .to_file(str(directory / "out"), format="json")
    )  # fmt: skip
    return job


def expect_rows(directory: Path) -> None:
    found = [json.loads(line) for part in directory.glob("out/*.json") for line in part.read_bytes().splitlines()]
    wanted = (
        [{"host": "a", "n": n} for n in range(2000)]
        + [{"host": "b", "n": n} for n in range(100)]
        + [{"host": "c", "n": None}]
    )
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


@pytest.mark.parametrize("workers", [None, 2])
def test_jobs_on_light(tmp_path: Path, workers: int | None) -> None:
    job = job_over(tmp_path)
    job.run(backend="light", **({} if workers is None else {"workers": workers}))
    expect_rows(tmp_path)


@pytest.mark.slow
@pytest.mark.spark
def test_a_job_on_spark(tmp_path: Path) -> None:
    job = job_over(tmp_path)
    job.run(backend="spark", checkpoint=str(tmp_path / "state"), max_micro_batch_records=700)
    expect_rows(tmp_path)


def test_a_table_in_sql(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b"n,host\n1,a\n2,b\n")
    text = """
        CREATE TABLE t (host STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '@IN', 'format' = 'csv', 'header' = 'true',
          'columns-by' = 'header');
        CREATE TABLE o (host STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '@OUT', 'format' = 'json');
        INSERT INTO o SELECT host, n FROM t WHERE n > 1;"""
    hr.sql(text.replace("@IN", str(tmp_path / "in.csv"), 1).replace("@OUT", str(tmp_path / "out"), 1)).run(
        backend="light"
    )
    found = [json.loads(line) for part in (tmp_path / "out").glob("*.json") for line in part.read_bytes().splitlines()]
    assert found == [{"host": "b", "n": 2}]
