"""Lines of text that belong together are one record, however a file is read, written and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from file_world import Records, World, checkpointed, drain
from headrace_file.multiline_framing import MultilineFraming
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

FIRST = r"^\d{4}-\d\d-\d\d "
TRACE = b"2026-01-31 ERROR failed\njava.lang.Error: x\n\tat a.b.C\n\tat a.b.D\n"
ONE = b"2026-01-31 INFO fine\n"


def records(
    data: bytes, *, final: bool = False, limit: int = 10_000, lines_max: int = 500, **pattern: str
) -> list[bytes]:
    """Return the records of ``data``, and last what comes after them."""
    given_patterns = {"first_line": None, "continuation": None, **(pattern or {"first_line": FIRST})}
    framing = MultilineFraming(lines_max=lines_max, **given_patterns)
    begin, found = 0, []
    for end in framing.ends(data, 0, final=final, limit=limit).tolist():
        found.append(data[begin:end])
        begin = end + 1
    return [*found, data[begin:]]


def test_a_record_ends_where_the_next_begins() -> None:
    assert records(ONE + TRACE + ONE) == [ONE[:-1], TRACE[:-1], ONE]
    assert records(ONE + TRACE, final=True) == [ONE[:-1], TRACE[:-1], b""]
    assert records(b"\tat a\n\tat b\n" + ONE + ONE) == [b"\tat a\n\tat b", ONE[:-1], ONE]
    assert records(b"no newline") == [b"no newline"]


def test_the_last_line_counts_when_its_newline_is_there() -> None:
    assert records(ONE + b"2026-01-31 ha") == [ONE + b"2026-01-31 ha"]
    assert records(ONE + b"2026-01-31 ha\n") == [ONE[:-1], b"2026-01-31 ha\n"]


def test_continuations_are_the_other_way_to_say_it() -> None:
    data = b"a\n  b\n  c\nd\ne\n  f\n"
    assert records(data, continuation=r"^\s") == [b"a\n  b\n  c", b"d", b"e\n  f\n"]
    assert records(data, first_line=r"^\S") == records(data, continuation=r"^\s")
    assert records(b"a\r\n\r\nb\r\n", continuation="^$") == [b"a\r\n\r", b"b\r\n"]


def test_bounds() -> None:
    assert records(b"a\n b\n c\n d\n e\nf\n", lines_max=2, continuation="^ ") == [b"a\n b", b" c\n d", b" e", b"f\n"]
    found = records(b"a\n" + b" 23456789\n" * 10, limit=45, continuation="^ ")
    assert all(len(record) <= 45 for record in found)
    assert b"\n".join(found) == b"a\n" + b" 23456789\n" * 10


LINES = st.lists(
    st.sampled_from([ONE, b"\tat x\n", b"\n", b"2026-01-31 \xff\r\n", b"  long" * 30 + b"\n"]), max_size=40
)


@settings(max_examples=examples(60), deadline=None)
@given(lines=LINES, data=st.data())
def test_any_way_of_reading_gives_the_same_records(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], data: st.DataObject
) -> None:
    """Written in pieces, read in small reads, resumed from checkpoints anywhere."""
    world = World(tmp_path_factory.mktemp("multiline"))
    options: dict[str, Any] = {
        "first_line": FIRST,
        "record_lines_max": 5,
        "max_record_bytes": 400,
        "last_line": "wait",
        "blank_lines": "keep",
    }
    whole = b"".join(lines) + ONE
    world.write("log", b"")
    reader, found, at = world.open(world.source(read_bytes=1024, **options)), Records(), 0
    while at < len(whole):
        size = data.draw(st.integers(1, 300))
        world.append("log", whole[at : at + size])
        at += size
        found += drain(reader, per_poll=data.draw(st.integers(1, 5)))
        if data.draw(st.booleans()):
            reader = world.open(world.source(read_bytes=1024, **options), start=checkpointed(reader.position))
    assert found == drain(world.open(world.source(**options)))
    taken = drain(world.open(world.source(until="end", **{**options, "last_line": "auto"})))
    assert b"\n".join(taken.bodies).replace(b"\r", b"") == whole[:-1].replace(b"\r", b"")
    world.close()


def test_the_last_record_comes_when_the_file_is_quiet(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("log", ONE + TRACE)
    reader = world.open(world.source(first_line=FIRST))
    assert drain(reader).bodies == [ONE[:-1]]
    world.quiet()
    assert drain(reader).bodies == [TRACE[:-1]]
    world.append("log", b"\tat late\n")
    assert drain(reader).bodies == [b"\tat late"]  # the clock is still that of the quiet file
    world.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first_line": "("}, "not a regular expression"),
        ({"first_line": "a", "continuation": "b"}, "cannot be combined with"),
        ({"framing": "multiline"}, "needs first_line or continuation"),
        ({"first_line": "a", "framing": "csv"}, "framing"),
    ],
)
def test_options_that_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(hr.OptionError, match=message):
        World(tmp_path).source(**options)


def test_a_job_gives_a_row_for_each_stack_trace(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_bytes(ONE + TRACE + ONE)
    stream = hr.stream("test", "traces").from_file(
        str(tmp_path / "app.log"), format="raw", first_line=FIRST, pattern=r"(?s)^(?P<day>\S+) (?P<level>\w+) (?P<text>.*)",
        schema={"day": "string", "level": "string", "text": "string"},
    )  # fmt: skip
    rows = stream.collect().rows(named=True)
    assert [row["level"] for row in rows] == ["INFO", "ERROR", "INFO"]
    assert rows[1]["text"] == "failed\njava.lang.Error: x\n\tat a.b.C\n\tat a.b.D"
    assert json.dumps(rows[0])
