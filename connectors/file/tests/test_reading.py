"""One file that nobody renames: records, numbers, positions, ends."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta

import pytest
from file_world import NO_WAIT, World, checkpointed, drain, lines
from headrace.codecs.csv import CsvCodec, CsvSettings
from headrace.flow.messages import ReadPosition
from headrace.flow.schema import Schema
from headrace.foundation.errors import CheckpointError, DataError, JobError, OptionError
from headrace.interfaces.source import EARLIEST, LATEST, StartAt
from headrace_file import FileSource, FileSourceSettings


class TestLines:
    def test_lines_are_numbered_from_zero(self, world: World) -> None:
        world.write("log", b"a\nbb\nccc\n")
        assert drain(world.open(world.source())) == [(0, b"a"), (1, b"bb"), (2, b"ccc")]

    def test_bodies_lie_in_the_buffer_that_was_read(self, world: World) -> None:
        world.write("log", lines(*range(100)))
        raw = world.open(world.source()).poll(100, NO_WAIT)
        assert raw is not None
        assert raw.bodies is not None
        assert raw.bodies.newline_separated
        assert raw.bodies.joined() == lines(*range(100))[:-1]

    @pytest.mark.parametrize("data", [b"a\r\nb\r\n\r\nc\nd\r\n", b"\r\na\r\nb\n"])
    def test_carriage_returns_before_newlines_are_no_part_of_records(self, world: World, data: bytes) -> None:
        world.write("log", data)
        expected = [(n, body) for n, body in enumerate(data.replace(b"\r", b"").split(b"\n")[:-1]) if body]
        assert drain(world.open(world.source())) == expected

    def test_carriage_returns_elsewhere_stay(self, world: World) -> None:
        world.write("log", b"a\rb\r\r\n\rc\n")
        assert drain(world.open(world.source())).bodies == [b"a\rb\r", b"\rc"]

    def test_blank_lines_are_left_out_and_keep_their_number(self, world: World) -> None:
        world.write("log", b"\n\na\n\nb\n \n\n")
        assert drain(world.open(world.source())) == [(2, b"a"), (4, b"b"), (5, b" ")]

    def test_blank_lines_can_be_records(self, world: World) -> None:
        world.write("log", b"\na\r\n\r\n")
        found = drain(world.open(world.source(blank_lines="keep")))
        assert found == [(0, b""), (1, b"a"), (2, b"")]

    def test_only_blank_lines_move_the_position(self, world: World) -> None:
        world.write("log", b"\n\n\n")
        reader = world.open(world.source())
        raw = reader.poll(10, NO_WAIT)
        assert raw is not None
        assert len(raw) == 0
        assert raw.next_position.offset == 3
        assert reader.latest == 3

    def test_byte_order_mark(self, world: World) -> None:
        world.write("log", b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n")
        assert drain(world.open(world.source())).bodies == [b"a", b"\xef\xbb\xbfb"]

    def test_any_bytes(self, world: World) -> None:
        body = bytes(set(range(256)) - {10, 13})
        world.write("log", body + b"\n" + body[::-1] + b"\n")
        assert drain(world.open(world.source())).bodies == [body, body[::-1]]

    @pytest.mark.parametrize("read_bytes", [1024, 3000, 65536])
    def test_lines_longer_than_a_read(self, world: World, read_bytes: int) -> None:
        bodies = [b"x" * n for n in (1, 5000, 10, 100_000, 3, 1023, 1024, 1025, 0, 7)]
        world.write("log", b"".join(body + b"\n" for body in bodies))
        reader = world.open(world.source(read_bytes=read_bytes, blank_lines="keep"))
        assert reader.latest == len(bodies)
        assert drain(reader, per_poll=3).bodies == bodies


class TestOverlongRecords:
    def test_neighbours_come_through_and_the_record_is_cut_visibly(self, world: World) -> None:
        world.write("log", b"a\n" + b"x" * 500 + b"\nb\n" + b"y" * 101 + b"\n" + b"z" * 100 + b"\n")
        reader = world.open(world.source(max_record_bytes=100, read_bytes=1024))
        assert reader.latest == 5
        found = drain(reader)
        assert found.numbers == [0, 1, 2, 3, 4]
        assert found.bodies[0::2] == [b"a", b"b", b"z" * 100]
        assert found.bodies[1] == b"x" * 100 + b"\xff[cut: the record has 500 bytes, the limit is 100]"
        assert found.bodies[3].startswith(b"y" * 100 + b"\xff[cut: the record has 101 bytes")

    def test_without_holding_it(self, world: World) -> None:
        import tracemalloc

        with open(world.path("log"), "wb") as file:
            for _ in range(60):
                file.write(b"x" * 1_000_000)
            file.write(b"\nlast\n")
        reader = world.open(world.source(max_record_bytes=1_000_000))
        tracemalloc.start()
        try:
            found = drain(reader)
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
        finally:
            tracemalloc.stop()
        assert found.bodies[1] == b"last"
        assert b"the record has 60000000 bytes" in found.bodies[0][-100:]

    def test_its_end_is_waited_for(self, world: World) -> None:
        world.write("log", b"x" * 3000)
        reader = world.open(world.source(max_record_bytes=100, read_bytes=1024))
        assert drain(reader) == []
        world.append("log", b"y" * 3000)
        assert drain(reader) == []
        world.append("log", b"\nb\n")
        found = drain(reader)
        assert found.numbers == [0, 1]
        assert b"the record has 6000 bytes" in found.bodies[0]
        assert drain(world.open(world.source(), start=reader.position)) == []

    def test_the_format_refuses_it_however_its_limit_is_set(self, world: World) -> None:
        world.write("log", b"x" * 2000 + b"\n" + b"1" * 10 + b"\n")
        source = world.source(max_record_bytes=64)
        codec = CsvCodec(CsvSettings(max_body_bytes=1000))
        source.use_format("csv", codec)
        raw = world.open(source).poll(10, NO_WAIT)
        assert raw is not None
        assert raw.bodies is not None
        decoded = codec.decoder(Schema.of({"text": "string"})).decode(raw.bodies)
        assert [bad.row for bad in decoded.bad] == [0]
        assert decoded.frame.height == len(raw) - 1

    def test_a_position_behind_it_holds(self, world: World) -> None:
        world.write("log", b"x" * 500 + b"\nb\nc\n")
        source = world.source(max_record_bytes=100)
        reader = world.open(source)
        drain(reader, at_most=1)
        assert drain(world.open(world.source(), start=checkpointed(reader.position))) == [(1, b"b"), (2, b"c")]


class TestHeaders:
    def test_header_and_lines_before_it_are_no_records(self, world: World) -> None:
        world.write("log", b"# made by x\nid,text\n1,a\n2,b\n")
        reader = world.open(world.source(format="csv", header=True, skip_lines=1))
        assert reader.latest == 2
        assert drain(reader) == [(0, b"1,a"), (1, b"2,b")]
        assert drain(reader) == []

    def test_header_alone(self, world: World) -> None:
        world.write("log", b"id,text\n")
        reader = world.open(world.source(header=True))
        assert (reader.latest, drain(reader)) == (0, [])
        world.append("log", b"1,a\n")
        assert drain(reader) == [(0, b"1,a")]

    @pytest.mark.parametrize("until", ["end", None])
    def test_an_unfinished_header_is_no_record(self, world: World, until: str | None) -> None:
        world.write("log", b"id,te")
        reader = world.open(world.source(header=True, until=until))
        assert (reader.latest, drain(reader)) == (0, [])
        world.append("log", b"xt\n1,a\n")
        assert drain(reader) == [(0, b"1,a")]

    def test_quoted_newlines_in_the_header(self, world: World) -> None:
        world.write("log", b'id,"a\nb"\n1,x\n')
        assert drain(world.open(world.source(format="csv", header=True))).bodies == [b"1,x"]

    def test_byte_order_mark_before_the_header(self, world: World) -> None:
        world.write("log", b"\xef\xbb\xbfid,text\n1,a\n")
        source = world.source(header=True)
        source.use_format("csv", CsvCodec(), Schema.of({"id": "int64", "text": "string"}))
        assert drain(world.open(source)).bodies == [b"1,a"]

    def test_a_header_in_another_order_is_an_error(self, world: World) -> None:
        world.write("log", b"text,id\n1,a\n")
        source = world.source(header=True)
        source.use_format("csv", CsvCodec(), Schema.of({"id": "int64", "text": "string"}))
        with pytest.raises(DataError, match=r"names text, id; the job reads id, text"):
            drain(world.open(source))

    def test_the_codecs_columns_are_what_the_header_is_compared_with(self, world: World) -> None:
        world.write("log", b"text;id;more\na;1;x\n")
        source = world.source(header=True)
        codec = CsvCodec(CsvSettings(columns=("text", "id", "more"), delimiter=";"))
        source.use_format("csv", codec, Schema.of({"id": "int64"}))
        assert drain(world.open(source)).bodies == [b"a;1;x"]


class TestCsv:
    def test_newlines_in_quotes_belong_to_the_record(self, world: World) -> None:
        world.write("log", b'1,"a\nb"\r\n2,"x""\r\ny"\r\n3,c\r\n')
        reader = world.open(world.source(format="csv"))
        assert reader.latest == 3
        assert drain(reader) == [(0, b'1,"a\nb"'), (1, b'2,"x""\r\ny"'), (2, b"3,c")]

    def test_framing_can_be_told(self, world: World) -> None:
        world.write("log", b'1,"a\nb"\n')
        assert drain(world.open(world.source(format="csv", framing="newline"))).bodies == [b'1,"a', b'b"']
        assert drain(world.open(world.source(format="json", framing="csv"))).bodies == [b'1,"a\nb"']

    def test_the_formats_characters_are_used(self, world: World) -> None:
        world.write("log", b"1\t'a\nb'\n")
        source = world.source()
        source.use_format("csv", CsvCodec(CsvSettings(delimiter="\\t", quote="'")))
        assert drain(world.open(source)).bodies == [b"1\t'a\nb'"]

    def test_a_format_without_quotes(self, world: World) -> None:
        world.write("log", b'1,"a\n2,b\n')
        source = world.source()
        source.use_format("csv", CsvCodec(CsvSettings(quote=None)))
        assert drain(world.open(source)).bodies == [b'1,"a', b"2,b"]

    def test_an_open_quote_at_the_end_takes_no_neighbours_along(self, world: World) -> None:
        world.write("log", b'1,a\n2,"never closed\n3,c\n')
        reader = world.open(world.source(format="csv", until="end"))
        assert reader.latest == 3
        assert drain(reader).bodies == [b"1,a", b'2,"never closed', b"3,c"]

    def test_an_open_quote_is_waited_for_when_following(self, world: World) -> None:
        world.write("log", b'1,a\n2,"open\n')
        reader = world.open(world.source(format="csv"))
        assert drain(reader).bodies == [b"1,a"]
        world.append("log", b'closed"\n')
        assert drain(reader).bodies == [b'2,"open\nclosed"']


class TestLastLine:
    def test_waits_for_its_newline_when_following(self, world: World) -> None:
        world.write("log", b"a\nb")
        reader = world.open(world.source())
        assert (reader.latest, drain(reader).bodies) == (1, [b"a"])
        world.append("log", b"c")
        assert (reader.latest, drain(reader).bodies) == (1, [])
        world.append("log", b"\nd\n")
        assert (reader.latest, drain(reader)) == (3, [(1, b"bc"), (2, b"d")])

    def test_is_a_record_when_the_run_ends_with_the_input(self, world: World) -> None:
        world.write("log", b"a\nb")
        reader = world.open(world.source(until="end"))
        assert (reader.latest, drain(reader)) == (2, [(0, b"a"), (1, b"b")])
        assert drain(reader) == []

    def test_is_a_record_when_the_file_has_been_quiet(self, world: World) -> None:
        world.write("log", b"a\nb")
        reader = world.open(world.source(last_line_timeout="10 s"))
        assert drain(reader).bodies == [b"a"]
        world.clock.advance(9)
        assert drain(reader).bodies == []
        world.clock.advance(2)
        assert (reader.latest, drain(reader)) == (2, [(1, b"b")])

    def test_wait_waits_for_ever(self, world: World) -> None:
        world.write("log", b"a\nb")
        reader = world.open(world.source(last_line="wait", until="end"))
        world.quiet()
        assert (reader.latest, drain(reader).bodies) == (1, [b"a"])

    def test_take_takes_at_once(self, world: World) -> None:
        world.write("log", b"a\nb")
        assert drain(world.open(world.source(last_line="take"))).bodies == [b"a", b"b"]

    @pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
    @pytest.mark.parametrize("restart", [False, True])
    def test_taken_and_then_ended_is_given_once(self, world: World, newline: bytes, restart: bool) -> None:
        world.write("log", b"a\nb")
        source = world.source(until="end")
        reader = world.open(source)
        assert drain(reader) == [(0, b"a"), (1, b"b")]
        if restart:
            position = checkpointed(reader.position)
            reader = world.open(world.source(until="end"), start=position)
        world.append("log", newline)
        assert drain(reader) == []
        world.append("log", b"c")
        assert drain(reader) == [(2, b"c")]

    @pytest.mark.parametrize("restart", [False, True])
    def test_taken_and_then_continued_is_given_again_as_a_whole(self, world: World, restart: bool) -> None:
        world.write("log", b'a\n{"x":')
        reader = world.open(world.source(until="end"))
        assert drain(reader) == [(0, b"a"), (1, b'{"x":')]
        position = checkpointed(reader.position)
        world.append("log", b" 1}\nc\n")
        if restart:
            reader = world.open(world.source(), start=position)
        assert drain(reader) == [(2, b'{"x": 1}'), (3, b"c")]

    def test_counting_does_not_hold_on_to_it(self, world: World) -> None:
        world.write("log", b"a\nb")
        reader = world.open(world.source(until="end"))
        assert reader.latest == 2
        world.append("log", b"c\nd\n")
        assert reader.latest == 3
        assert drain(reader) == [(0, b"a"), (1, b"bc"), (2, b"d")]

    def test_overlong(self, world: World) -> None:
        world.write("log", b"a\n" + b"x" * 1000)
        reader = world.open(world.source(until="end", max_record_bytes=100))
        assert reader.latest == 2
        assert drain(reader).numbers == [0, 1]
        assert drain(reader) == []


class TestStarts:
    def test_latest(self, world: World) -> None:
        world.write("log", lines(*range(10)) + b"begun")
        reader = world.open(world.source(), start=LATEST)
        assert reader.position.offset == reader.latest == 10
        world.append("log", b" here\n")
        assert drain(reader) == [(10, b"begun here")]

    def test_latest_of_an_empty_file(self, world: World) -> None:
        world.write("log", b"")
        reader = world.open(world.source(), start=LATEST)
        world.append("log", lines(0))
        assert drain(reader).numbers == [0]

    def test_a_time_leaves_out_files_that_were_last_changed_before(self, world: World) -> None:
        path = world.write("log", lines(0, 1))
        changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        before, after = changed - timedelta(seconds=1), changed + timedelta(seconds=1)
        assert drain(world.open(world.source(), start=StartAt(before))).numbers == [0, 1]
        assert drain(world.open(world.source(), start=StartAt(after))).numbers == []

    def test_a_position_without_a_hint(self, world: World) -> None:
        world.write("log", lines(*range(100)))
        assert drain(world.open(world.source(), start=ReadPosition(97))).numbers == [97, 98, 99]
        assert drain(world.open(world.source(), start=ReadPosition(100))).numbers == []
        with pytest.raises(DataError, match=r"record 101 of .*log is not there: the next to come is 100"):
            world.open(world.source(), start=ReadPosition(101))

    def test_a_damaged_hint_is_named(self, world: World) -> None:
        world.write("log", lines(0))
        with pytest.raises(CheckpointError, match="stored position of a file is damaged"):
            world.open(world.source(), start=ReadPosition(1, {"topic": "x"}))

    def test_reading_from_the_start_twice_gives_the_same(self, world: World) -> None:
        world.write("log", lines(*range(10)))
        source = world.source()
        assert drain(world.open(source)) == drain(world.open(source, start=EARLIEST))


class TestPositions:
    def test_any_place_can_be_resumed(self, world: World) -> None:
        data = b"\xef\xbb\xbf" + b"\r\n\n".join(b"body %d" % n for n in range(30)) + b"\n"
        world.write("log", data)
        whole = drain(world.open(world.source()))
        assert len(whole) == 30
        for count in range(60):
            reader = world.open(world.source())
            before: list[int] = []
            for _ in range(count):
                raw = reader.poll(1, NO_WAIT)
                before += [] if raw is None else raw.offsets.tolist()
            after = drain(world.open(world.source(), start=checkpointed(reader.position)))
            assert before + after.numbers == whole.numbers

    def test_seek(self, world: World) -> None:
        world.write("log", lines(*range(10)))
        reader = world.open(world.source())
        start = reader.position
        drain(reader, at_most=4)
        middle = reader.position
        drain(reader)
        reader.seek(middle)
        assert reader.position == middle
        assert drain(reader).numbers == [4, 5, 6, 7, 8, 9]
        reader.seek(start)
        assert drain(reader).numbers == list(range(10))
        reader.seek(ReadPosition(8))
        assert drain(reader).numbers == [8, 9]

    def test_position_after_agrees_with_poll(self, world: World) -> None:
        world.write("log", b"\n".join(b"x" * (n % 7) for n in range(1000)) + b"\n")
        reader = world.open(world.source())
        while True:
            planned = reader.position_after(37)
            assert planned == reader.position_after(37)
            if reader.poll(37, NO_WAIT) is None:
                break
            assert reader.position.offset == planned.offset
            assert reader.position.hint["byte"] == planned.hint["byte"]
        assert planned.offset == 1000

    def test_resuming_reads_only_what_follows(self, world: World) -> None:
        """The byte position is used: nothing before it is looked at but the begin and the last bytes."""
        body = b"x" * 99 + b"\n"
        world.write("log", body * 10_000)
        reader = world.open(world.source())
        while reader.position.offset < 9_000:
            reader.poll(1000, NO_WAIT)
        position = checkpointed(reader.position)
        with open(world.path("log"), "r+b") as file:
            file.seek(5000)
            file.write(b"\n" * 100_000)
        assert drain(world.open(world.source(), start=position)).numbers == list(range(9_000, 10_000))

    def test_a_copy_of_the_source_knows_nothing_and_reads_on(self, world: World) -> None:
        import cloudpickle

        world.write("log", lines(*range(10)))
        source = world.source()
        reader = world.open(source)
        drain(reader, at_most=5)
        copy = cloudpickle.loads(cloudpickle.dumps(source))
        assert isinstance(copy, FileSource)
        assert drain(copy.open(world.queue(), checkpointed(reader.position))).numbers == [5, 6, 7, 8, 9]
        copy.close()


class TestWaiting:
    def test_a_waiting_poll_sees_what_comes(self, world: World) -> None:
        world.write("log", b"")
        source = FileSource(FileSourceSettings.of({"path": str(world.path("log")), "poll_interval": "1 ms"}))
        reader = source.open(world.queue(), EARLIEST)
        thread = threading.Timer(0.05, world.append, ("log", lines(7)))
        thread.start()
        raw = reader.poll(10, timedelta(seconds=30))
        thread.join()
        source.close()
        reader.close()
        assert raw is not None
        assert raw.offsets.tolist() == [0]

    def test_the_timeout_is_kept(self, world: World) -> None:
        world.write("log", b"")
        reader = world.open(world.source())
        begun = world.clock.monotonic()
        assert reader.poll(10, timedelta(seconds=3)) is None
        assert world.clock.monotonic() - begun == pytest.approx(3)

    def test_an_idle_poll_does_not_open_the_file(self, world: World) -> None:
        world.write("log", lines(0))
        reader = world.open(world.source())
        drain(reader)
        if os.getuid() == 0:
            os.rename(world.path("log"), world.path("aside"))
            os.link(world.path("aside"), world.path("log"))
        assert reader.poll(10, NO_WAIT) is None


class TestManyFiles:
    def test_no_more_descriptors_than_allowed(self, world: World) -> None:
        names = [f"f{n}" for n in range(50)]
        for name in names:
            world.write(name, lines(*range(20)))
        source = world.source(".", max_open_files=5)
        source.queues()
        readers = [world.open(source, name, discover=False) for name in names]
        before = len(os.listdir("/proc/self/fd"))
        found = [drain(reader, at_most=10) for reader in readers]
        assert len(os.listdir("/proc/self/fd")) - before <= 5
        rest = [drain(reader) for reader in readers]
        assert all(one.numbers + two.numbers == list(range(20)) for one, two in zip(found, rest, strict=True))
        for reader in readers:
            reader.close()


class TestErrors:
    def test_a_missing_path_is_named(self, world: World) -> None:
        with pytest.raises(JobError, match=r"nothing\.log does not exist"):
            world.source("nothing.log").queues()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"path": ""}, "no path is given"),
            ({"path": []}, "no path is given"),
            ({"path": "x", "rotated": ["*.log"]}, "does not begin with"),
            ({"path": "x", "csv_quote": "''"}, "is not one ASCII character"),
            ({"path": "x", "max_record_bytes": 3}, "64"),
            ({"path": "x", "compression": "brotli"}, "brotli"),
            ({}, "required option is missing"),
        ],
    )
    def test_unusable_options(self, options: dict[str, object], message: str) -> None:
        with pytest.raises(OptionError, match=message):
            FileSourceSettings.of(options, plugin="file")

    def test_delimiter_and_quote_must_differ(self, world: World) -> None:
        with pytest.raises(OptionError, match="same character"):
            world.source(framing="csv", csv_quote=",")

    def test_sizes_and_times_as_texts(self) -> None:
        made = FileSourceSettings.of({"path": "x", "read_bytes": "1 MiB", "rotate_wait": "2 s", "header": "true"})
        assert (made.read_bytes, made.rotate_wait, made.header) == (1024**2, timedelta(seconds=2), True)
