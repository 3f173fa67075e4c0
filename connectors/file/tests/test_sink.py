"""Part files: names, formats, positions, and who may write."""

from __future__ import annotations

import csv
import gzip
import json
import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
import zstandard
from headrace.flow.messages import OFFSET, ROW, Batch, Position, Queue
from headrace.flow.rows import pack_rows
from headrace.flow.schema import Schema
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import JobError, MissingPluginError, OptionError, RetriableError
from headrace.interfaces.sink import SinkBatch, StaleWriterError
from headrace.runtime.sink_writer import SinkWriter
from headrace_file import FileSink, FileSinkSettings, FileSource, FileSourceSettings
from headrace_file.parts import list_positions, part_name, queue_key, slug
from sink_world import SCHEMA, insert, make_sink, parts, rows, stored


class TestParts:
    def test_a_batch_is_a_part(self, tmp_path: Path) -> None:
        sink = make_sink(tmp_path / "out")
        insert(sink, "events/a.ndjson", 0, 3)
        insert(sink, "events/a.ndjson", 3, 2)
        assert [path.name for path in parts(tmp_path / "out")] == [
            "part-events-a.ndjson-4c8d3fc85e37a65c-0000000000000000002-0000000000.json",
            "part-events-a.ndjson-4c8d3fc85e37a65c-0000000000000000004-0000000000.json",
        ]
        assert parts(tmp_path / "out")[0].read_bytes() == (
            b'{"id":0,"text":"events/a.ndjson 0"}\n{"id":1,"text":"events/a.ndjson 1"}\n'
            b'{"id":2,"text":"events/a.ndjson 2"}\n'
        )

    def test_names_sort_in_the_order_of_rows(self, tmp_path: Path) -> None:
        sink = make_sink(tmp_path)
        first = 0
        for count in (9, 1, 90, 900, 10_000, 1):
            insert(sink, "q", first, count)
            first += count
        assert stored(parts(tmp_path)) == [("q", n) for n in range(first)]

    def test_nothing_else_is_seen(self, tmp_path: Path) -> None:
        insert(make_sink(tmp_path), "q", 0, 1)
        assert sorted(path.name.partition("-")[0] for path in tmp_path.iterdir()) == ["_headrace", "part"]

    def test_the_file_source_reads_them(self, tmp_path: Path) -> None:
        insert(make_sink(tmp_path), "q", 0, 1)
        source = FileSource(FileSourceSettings.of({"path": str(tmp_path), "recursive": True}))
        assert [Path(queue.name) for queue in source.queues()] == parts(tmp_path)

    def test_prefix(self, tmp_path: Path) -> None:
        insert(make_sink(tmp_path, prefix="alerts-2026"), "q", 0, 1)
        assert parts(tmp_path)[0].name.startswith("alerts-2026-q-")
        assert make_sink(tmp_path).last_offset(Queue("q")) == Position(0)

    def test_new_directories_are_made(self, tmp_path: Path) -> None:
        insert(make_sink(tmp_path / "a" / "b"), "q", 0, 1)
        assert len(parts(tmp_path / "a" / "b")) == 1

    @pytest.mark.parametrize("id", ["a/b", "../../x", "/", "", "grüße", "x" * 300, "a b\n", ".hidden", "_x", "-x-"])
    def test_any_queue_has_a_harmless_name(self, id: str) -> None:
        queue = Queue(id)
        name = part_name("part", queue, queue_key(queue, ""), Position(2**63 - 1, 2**31 - 1), "json.gz")
        assert "/" not in name
        assert len(name) < 150
        assert name.isascii()
        assert not slug(queue).startswith((".", "_", "-"))

    def test_positions_are_read_from_names(self, tmp_path: Path) -> None:
        queue = Queue("a-b.1")
        key = queue_key(queue, "")
        for position in (Position(5), Position(17, 3), Position(17, 2)):
            (tmp_path / part_name("p-1", queue, key, position, "csv")).touch()
        for other in ("part.json", "part-x-1-2.json", f"x-{key}-5-5.json", "_headrace"):
            (tmp_path / other).touch()
        assert list_positions(str(tmp_path)) == {key: Position(17, 3)}


class TestFormats:
    def test_csv_with_a_header_in_each_part(self, tmp_path: Path) -> None:
        sink = make_sink(tmp_path, format="csv")
        insert(sink, "q", 0, 1)
        insert(sink, "q", 1, 1)
        assert [path.read_text() for path in sorted(tmp_path.glob("*.csv"))] == ["id,text\n0,q 0\n", "id,text\n1,q 1\n"]

    def test_csv_without_header(self, tmp_path: Path) -> None:
        insert(make_sink(tmp_path, format="csv", header=False), "q", 0, 1)
        assert [path.read_text() for path in tmp_path.glob("*.csv")] == ["0,q 0\n"]

    def test_csv_with_the_formats_options(self, tmp_path: Path) -> None:
        options = {"delimiter": ";", "columns": ["text"]}
        insert(make_sink(tmp_path, format="csv", format_options=options), "q", 0, 1)
        assert [path.read_text() for path in tmp_path.glob("*.csv")] == ["text\nq 0\n"]

    def test_names_in_csv_headers_are_quoted(self, tmp_path: Path) -> None:
        schema = Schema({'a,"b"\nc': pl.Int64(), " ": pl.Int64()})
        sink = FileSink(FileSinkSettings.of({"path": str(tmp_path), "format": "csv"}))
        sink.check(schema)
        sink.prepare(schema)
        frame = rows("q", 0, 1).frame.rename({"id": 'a,"b"\nc'}).drop("text").with_columns(pl.lit(7).alias(" "))
        sink.batch_insert(SinkBatch(Queue("q"), frame))
        with open(next(iter(tmp_path.glob("*.csv"))), newline="") as file:
            assert list(csv.reader(file)) == [['a,"b"\nc', " "], ["0", "7"]]

    @pytest.mark.parametrize("format", ["json", "csv"])
    @pytest.mark.parametrize(("kind", "suffix"), [("gzip", ".gz"), ("zstd", ".zst")])
    def test_compression(self, tmp_path: Path, format: str, kind: str, suffix: str) -> None:
        insert(make_sink(tmp_path, format=format, compression=kind, header=False), "q", 0, 100)
        (part,) = tmp_path.glob(f"*.{format}{suffix}")
        packed = part.read_bytes()
        data = gzip.decompress(packed) if kind == "gzip" else zstandard.ZstdDecompressor().decompress(packed)
        assert data.count(b"\n") == 100
        assert make_sink(tmp_path).last_offset(Queue("q")) == Position(99)

    @pytest.mark.parametrize("kind", [None, "none", "gzip", "zstd"])
    def test_parquet(self, tmp_path: Path, kind: str | None) -> None:
        insert(make_sink(tmp_path, format="parquet", compression=kind), "q", 0, 100)
        (part,) = tmp_path.glob("*.parquet")
        assert pl.read_parquet(part).equals(rows("q", 0, 100).user_frame())

    @pytest.mark.parametrize("format", ["json", "parquet"])
    def test_rows_of_unknown_columns(self, tmp_path: Path, format: str) -> None:
        sink = FileSink(FileSinkSettings.of({"path": str(tmp_path), "format": format}))
        sink.check(None)
        sink.prepare(None)
        made: list[dict[str, Any]] = [{"a": 1}, {"a": 2, "b": "x"}]
        frame = rows("q", 0, 2).frame.drop("id", "text").with_columns(pl.Series(ROW, pack_rows(made)))
        sink.batch_insert(SinkBatch(Queue("q"), frame))
        (part,) = tmp_path.glob("part-*")
        if format == "json":
            assert [json.loads(line) for line in part.read_bytes().splitlines()] == made
        else:
            assert pl.read_parquet(part).to_dicts() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]

    @pytest.mark.parametrize(
        ("options", "schema", "error", "message"),
        [
            ({"format": "jsonn"}, SCHEMA, MissingPluginError, "jsonn"),
            ({"format": "csv"}, None, OptionError, "columns"),
            ({"format": "csv", "format_options": {"delimitr": ";"}}, SCHEMA, OptionError, "delimiter"),
            ({"format": "parquet", "format_options": {"level": 3}}, SCHEMA, OptionError, "parquet has no option"),
        ],
    )
    def test_what_does_not_fit_is_refused_when_the_job_is_built(
        self, options: dict[str, Any], schema: Schema | None, error: type[JobError], message: str
    ) -> None:
        sink = FileSink(FileSinkSettings.of({"path": "out", **options}))
        with pytest.raises(error, match=message):
            sink.check(schema)
        assert not os.path.exists("out")

    @pytest.mark.parametrize(
        "options", [{}, {"path": ""}, {"path": "x", "prefix": "../x"}, {"path": "x", "prefix": "_x"}]
    )
    def test_unusable_options(self, options: dict[str, Any]) -> None:
        with pytest.raises(OptionError):
            FileSinkSettings.of(options, plugin="file")


class TestPosition:
    def test_it_is_kept_when_parts_are_moved_away(self, tmp_path: Path) -> None:
        sink = make_sink(tmp_path)
        insert(sink, "q", 0, 5)
        for part in parts(tmp_path):
            part.unlink()
        assert make_sink(tmp_path).last_offset(Queue("q")) == Position(4)
        insert(make_sink(tmp_path), "q", 5, 2)
        assert stored(parts(tmp_path)) == [("q", 5), ("q", 6)]

    def test_it_is_taken_from_the_parts_when_the_hidden_folder_is_gone(self, tmp_path: Path) -> None:
        import shutil

        insert(make_sink(tmp_path), "q", 0, 5)
        shutil.rmtree(tmp_path / "_headrace")
        sink = make_sink(tmp_path)
        assert sink.last_offset(Queue("q")) == Position(4)
        assert sink.last_offset(Queue("other")) is None
        insert(sink, "q", 5, 2)
        assert stored(parts(tmp_path)) == [("q", n) for n in range(7)]

    def test_the_directory_is_not_listed_again_for_each_queue(self, tmp_path: Path) -> None:
        """Once per boot of the machine is enough: since then the state files tell all."""
        insert(make_sink(tmp_path), "q", 0, 5)
        sink = make_sink(tmp_path)
        os.rename(tmp_path, tmp_path.with_name("aside"))
        (tmp_path / "_headrace").mkdir(parents=True)
        for folder in ("tmp", "state"):
            os.rename(tmp_path.with_name("aside") / "_headrace" / folder, tmp_path / "_headrace" / folder)
        assert sink.last_offset(Queue("q")) == Position(4)
        assert sink._listed is None

    def test_queues_and_branches_have_their_own(self, tmp_path: Path) -> None:
        sink = make_sink(tmp_path)
        queues = [Queue("a"), Queue("a", "source"), Queue("a", "source", "late"), Queue("source/a#late")]
        for number, queue in enumerate(queues[:3]):
            sink.batch_insert(SinkBatch(queue, rows("q", 0, number + 1).frame))
        assert [sink.last_offset(queue) for queue in queues[:3]] == [Position(0), Position(1), Position(2)]

    def test_writers_have_their_own(self, tmp_path: Path) -> None:
        insert(make_sink(tmp_path), "q", 0, 5)
        named = make_sink(tmp_path)
        named.writer_name = "shop.orders.to_file"
        assert named.last_offset(Queue("q")) is None
        other = make_sink(tmp_path, writer="other job")
        assert other.last_offset(Queue("q")) is None
        insert(other, "q", 0, 1)
        assert len(parts(tmp_path)) == 2

    def test_indexes_count(self, tmp_path: Path) -> None:
        sink = make_sink(tmp_path)
        frame = rows("q", 0, 3).frame.with_columns(pl.lit(7, dtype=pl.Int64).alias(OFFSET))
        frame = frame.with_columns(pl.Series("__hr_index", [0, 1, 2], dtype=pl.Int32))
        sink.batch_insert(SinkBatch(Queue("q"), frame[:2]))
        assert sink.last_offset(Queue("q")) == Position(7, 1)
        sink.batch_insert(SinkBatch(Queue("q"), frame[2:], Position(7, 1)))
        assert make_sink(tmp_path).last_offset(Queue("q")) == Position(7, 2)


class TestStateFile:
    def _file(self, directory: Path) -> Path:
        (found,) = (directory / "_headrace" / "state").iterdir()
        return found

    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_a_torn_slot_leaves_the_one_before_and_the_parts(self, tmp_path: Path, count: int) -> None:
        sink = make_sink(tmp_path)
        for number in range(count):
            insert(sink, "q", number, 1)
        path = self._file(tmp_path)
        data = bytearray(path.read_bytes())
        newest = 2048 * (count % 2)
        data[newest + 20 : newest + 30] = b"\xff" * 10
        path.write_bytes(bytes(data))
        sink = make_sink(tmp_path)
        if count == 1:
            with pytest.raises(JobError, match="is damaged"):
                sink.last_offset(Queue("q"))
            return
        assert sink.last_offset(Queue("q")) == Position(count - 1)
        insert(sink, "q", count, 1)
        assert stored(parts(tmp_path)) == [("q", n) for n in range(count + 1)]

    def test_an_empty_one_is_as_none(self, tmp_path: Path) -> None:
        """As file systems leave it after a crash of the machine."""
        insert(make_sink(tmp_path), "q", 0, 3)
        os.truncate(self._file(tmp_path), 0)
        assert make_sink(tmp_path).last_offset(Queue("q")) == Position(2)

    def test_after_a_restart_of_the_machine_the_parts_count_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        insert(make_sink(tmp_path), "q", 0, 3)
        old = self._file(tmp_path).read_bytes()
        insert(make_sink(tmp_path), "q", 3, 3)
        self._file(tmp_path).write_bytes(old)  # the last write had not reached the disk
        monkeypatch.setattr("headrace_file.queue_state.boot_id", lambda: "another boot")
        assert make_sink(tmp_path).last_offset(Queue("q")) == Position(5)

    def test_another_format_is_refused(self, tmp_path: Path) -> None:
        import zlib

        insert(make_sink(tmp_path), "q", 0, 1)
        path = self._file(tmp_path)
        text = path.read_bytes()[2048:].partition(b" ")[2].partition(b"\n")[0].replace(b'"format":2', b'"format":9')
        path.write_bytes((b"%08x %s\n" % (zlib.crc32(text), text)).ljust(2048, b"\0"))
        with pytest.raises(JobError, match=r"another version of headrace-file \(format 9\)"):
            make_sink(tmp_path).last_offset(Queue("q"))

    @pytest.mark.parametrize("commits", [1, 2, 3])
    def test_that_of_another_queue_is_refused(self, tmp_path: Path, commits: int) -> None:
        for number in range(commits):
            insert(make_sink(tmp_path), "q", number, 1)
        for number in range(3):
            insert(make_sink(tmp_path), "other", number * 5, 5, number * 5 - 1)
        own, other = (tmp_path / "_headrace" / "state" / queue_key(Queue(name), "") for name in ("q", "other"))
        kept = own.read_bytes()
        own.write_bytes(other.read_bytes())
        with pytest.raises(JobError, match=f"{own} contains the position of another queue or writer") as raised:
            make_sink(tmp_path).last_offset(Queue("q"))
        assert "remove it" in str(raised.value)
        with pytest.raises(JobError, match="contains the position of another queue"):
            insert(make_sink(tmp_path), "q", 15, 1)
        assert make_sink(tmp_path).last_offset(Queue("other")) == Position(14)
        own.write_bytes(kept)
        assert make_sink(tmp_path).last_offset(Queue("q")) == Position(commits - 1)

    def test_that_of_another_output_is_refused(self, tmp_path: Path) -> None:
        """The dead letters of a queue have another writer than its rows."""
        for name, count in (("rows", 5), ("dead letters", 2)):
            sink = make_sink(tmp_path / name, writer=name)
            insert(sink, "q", 0, count)
        own, other = (
            tmp_path / name / "_headrace" / "state" / queue_key(Queue("q"), name) for name in ("rows", "dead letters")
        )
        own.write_bytes(other.read_bytes())
        with pytest.raises(JobError, match=f"{own} contains the position of another queue or writer"):
            make_sink(tmp_path / "rows", writer="rows").last_offset(Queue("q"))

    @pytest.mark.parametrize("commits", [2, 3, 4, 5])
    @pytest.mark.parametrize("size", [1, 100, 1500, 2047, 2048])
    def test_one_that_has_lost_a_slot_is_refused(self, tmp_path: Path, commits: int, size: int) -> None:
        """What is left may be the older of both. No torn write cuts a file."""
        for number in range(commits):
            insert(make_sink(tmp_path), "q", number, 1)
        os.truncate(self._file(tmp_path), size)
        with pytest.raises(JobError, match=f"{self._file(tmp_path)} is damaged"):
            make_sink(tmp_path).last_offset(Queue("q"))

    @pytest.mark.parametrize("commits", [2, 3])
    @pytest.mark.parametrize("size", [0, 2049, 2100, 3000, 4095])
    def test_one_that_is_cut_elsewhere_is_right(self, tmp_path: Path, commits: int, size: int) -> None:
        """It is as none, or its second slot is torn, or nothing but what fills that slot up is gone."""
        for number in range(commits):
            insert(make_sink(tmp_path), "q", number, 1)
        os.truncate(self._file(tmp_path), size)
        assert make_sink(tmp_path).last_offset(Queue("q")) == Position(commits - 1)

    @pytest.mark.parametrize(("commits", "gone"), [(2, 2048), (3, 0), (3, 2048), (4, 0), (4, 2048)])
    def test_one_with_an_empty_slot_that_was_written_is_refused(self, tmp_path: Path, commits: int, gone: int) -> None:
        for number in range(commits):
            insert(make_sink(tmp_path), "q", number, 1)
        path = self._file(tmp_path)
        content = path.read_bytes()
        path.write_bytes(content[:gone] + bytes(2048) + content[gone + 2048 :])
        with pytest.raises(JobError, match="one of its two slots is missing"):
            make_sink(tmp_path).last_offset(Queue("q"))

    @pytest.mark.parametrize("commits", [1, 2, 3])
    def test_that_of_the_first_release_is_read(self, tmp_path: Path, commits: int) -> None:
        """Format 1 does not say whose position it is. The next commit does."""
        import zlib

        for number in range(commits):
            insert(make_sink(tmp_path), "q", number, 1)
        path = self._file(tmp_path)
        content = path.read_bytes()
        first_release = b""
        for at in (0, 2048):
            text = content[at : at + 2048].partition(b" ")[2].partition(b"\n")[0]
            if not text:
                first_release += bytes(2048)
                continue
            slot = json.loads(text)
            assert (slot.pop("key"), slot.pop("format")) == (path.name, 2)
            text = json.dumps({"format": 1, **slot}).encode()
            first_release += (b"%08x %s\n" % (zlib.crc32(text), text)).ljust(2048, b"\0")
        path.write_bytes(first_release)
        (tmp_path / "aside").mkdir()
        for part in parts(tmp_path):
            part.rename(tmp_path / "aside" / part.name)
        assert make_sink(tmp_path).last_offset(Queue("q")) == Position(commits - 1)
        insert(make_sink(tmp_path), "q", commits, 1)
        assert make_sink(tmp_path).last_offset(Queue("q")) == Position(commits)
        assert b'"key":"%s"' % path.name.encode() in path.read_bytes()


class TestOtherWriters:
    def test_a_writer_that_was_overtaken_is_refused(self, tmp_path: Path) -> None:
        zombie, owner = make_sink(tmp_path), make_sink(tmp_path)
        insert(zombie, "q", 0, 3)
        insert(owner, "q", 3, 3)
        with pytest.raises(StaleWriterError, match="another writer has stored rows of q"):
            insert(zombie, "q", 3, 3)
        assert stored(parts(tmp_path)) == [("q", n) for n in range(6)]
        assert os.listdir(tmp_path / "_headrace" / "tmp") == []

    def test_many_zombies_write_every_row_once(self, tmp_path: Path) -> None:
        failures: list[BaseException] = []

        def write(number: int) -> None:
            try:
                sink = make_sink(tmp_path, batch_size=7 + number, retry_backoff="1 ms", flush_interval="1 h")
                writer = SinkWriter(sink, "zombie", on_dead_letters=lambda bad: failures.append(AssertionError(bad)))
                for first in range(0, 400, 20 + number):
                    for queue in ("q0", "q1", "q2"):
                        writer.write(rows(queue, first, min(20 + number, 400 - first)))
                    writer.flush()
                writer.close()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        found = stored(parts(tmp_path))
        for queue in ("q0", "q1", "q2"):
            assert [row for row in found if row[0] == queue] == [(queue, n) for n in range(400)]
        assert os.listdir(tmp_path / "_headrace" / "tmp") == []

    def test_the_lock_is_waited_for_and_then_given_up(self, tmp_path: Path) -> None:
        import fcntl

        clock = ManualClock()
        sink = make_sink(tmp_path, clock=clock, lock_timeout="10 s")
        insert(sink, "q", 0, 1)
        (path,) = (tmp_path / "_headrace" / "state").iterdir()
        with open(path, "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(RetriableError, match="another writer holds"):
                insert(sink, "q", 1, 1)
        assert 10 <= clock.monotonic() < 11
        assert os.listdir(tmp_path / "_headrace" / "tmp") == []
        insert(sink, "q", 1, 1)
        assert stored(parts(tmp_path)) == [("q", 0), ("q", 1)]


class TestLifeCycle:
    def test_defaults_make_few_parts(self) -> None:
        settings = FileSinkSettings(path="x")
        assert settings.batch_size == settings.max_cached_rows == 100_000
        assert settings.flush_interval == timedelta(seconds=10)

    def test_written_through_the_writer(self, tmp_path: Path) -> None:
        sink = make_sink(tmp_path, batch_size=50)
        dead: list[Batch] = []
        writer = SinkWriter(sink, "file", on_dead_letters=dead.append)
        for first in range(0, 120, 10):
            writer.write(rows("q", first, 10))
        writer.close()
        assert dead == []
        assert [len(stored([part])) for part in parts(tmp_path)] == [50, 50, 20]

    def test_a_queue_that_comes_back_is_looked_up_again(self, tmp_path: Path) -> None:
        sink = make_sink(tmp_path)
        insert(sink, "q", 0, 1)
        sink.queue_removed(Queue("q"))
        sink.queue_removed(Queue("never seen"))
        insert(make_sink(tmp_path), "q", 1, 1)
        assert sink.last_offset(Queue("q")) == Position(1)

    def test_prepare_needs_a_directory(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(JobError, match="cannot write"):
            make_sink(tmp_path / "file")


class TestBadRows:
    def test_those_of_a_batch_are_one_file_of_dead_letters(self, tmp_path: Path) -> None:
        """Rows that the format cannot hold stand between others: neither they nor those are written one by one."""
        lines = [json.dumps({"text": f"{n}\n" if n % 3 == 0 else str(n)}) for n in range(300)]
        (tmp_path / "in.ndjson").write_text("\n".join(lines) + "\n")
        stream = hr.stream("file", "bad-rows").from_file(
            str(tmp_path / "in.ndjson"), format="json", schema={"text": "string"}
        )
        options = {"format_options": {"column": "text"}, "flush_interval": "1 h"}
        job = stream.to_file(str(tmp_path / "out"), format="raw", **options)
        job = job.also(stream.dead_letters().to_file(str(tmp_path / "bad"), format="json"))
        report = job.run("light", max_batch_records=100)
        bad, good = parts(tmp_path / "bad"), list((tmp_path / "out").glob("part-*"))
        assert (report.rows_written, report.dead_letters) == ({"to_file": 200}, 100)
        assert 1 <= len(bad) <= len(good) <= 3, "one file a flush at most"
        reasons = [json.loads(line) for path in bad for line in path.read_text().splitlines()]
        assert [json.loads(row["row"])["text"] for row in reasons] == [f"{n}\n" for n in range(0, 300, 3)]
        assert "line break" in reasons[0]["reason"]
        written = [int(line) for path in good for line in path.read_text().splitlines()]
        assert sorted(written) == [n for n in range(300) if n % 3]
