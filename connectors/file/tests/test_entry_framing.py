"""Records of several lines are the same however the file is read, written and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from file_world import Records, World, checkpointed, drain
from headrace_file.entry_framing import CriFraming, DockerJsonFraming, JournalExportFraming
from headrace_file.framing import Framing
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

FRAMINGS: dict[str, Framing] = {
    "cri": CriFraming(),
    "docker-json": DockerJsonFraming(),
    "journal-export": JournalExportFraming(),
}
LIMIT = 10_000


def records(framing: str, data: bytes, *, final: bool = False, limit: int = LIMIT) -> list[bytes]:
    """Return the records of ``data``, and last what comes after them."""
    begin, found = 0, []
    for end in FRAMINGS[framing].ends(data, 0, final=final, limit=limit).tolist():
        found.append(data[begin:end])
        begin = end + 1
    return [*found, data[begin:]]


def cri(stream: str, tag: str, message: str = "m") -> bytes:
    return f"2026-01-31T10:00:00.123456789Z {stream} {tag} {message}\n".encode()


def docker(stream: str, log: str) -> bytes:
    line = {"log": log, "stream": stream, "time": "2026-01-31T10:00:00.123456789Z"}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def joined(*lines: bytes) -> bytes:
    """Return a record of lines."""
    return b"".join(lines)[:-1]


class CountingCri(CriFraming):
    parsed = 0

    def _part(self, line: bytes) -> tuple[bytes, bool] | None:
        self.parsed += 1
        return super()._part(line)


def test_a_long_record_that_grows_is_parsed_once() -> None:
    """The end is found, and each line is looked at about once, however often the file has grown."""
    framing = CountingCri()
    lines = [cri("stdout", "P"), *(cri("stderr", tag, "x" * 50) for _ in range(1000) for tag in ("P", "F"))]
    lines += [cri("stderr", "P"), cri("stdout", "F"), cri("stderr", "F"), cri("stdout", "F")]
    buffer = b""
    for number, line in enumerate(lines):
        buffer += line
        ends = framing.ends(buffer, 0, final=False, limit=10_000_000)
        assert len(ends) == max(0, number - len(lines) + 3)
    assert framing.parsed < 200 * 200 / 2 + 3 * len(lines)  # the first 16 KiB are looked at each time
    fresh = CriFraming().ends(buffer, 0, final=False, limit=10_000_000)
    assert ends.tolist() == fresh.tolist()
    # Another file begins in the same way.
    other = b"".join(lines[:1500]) + cri("stdout", "F") + b"".join(lines[1500:])
    assert (
        framing.ends(other, 0, final=True, limit=10_000_000).tolist()
        == CriFraming().ends(other, 0, final=True, limit=10_000_000).tolist()
    )


class TestCri:
    def test_parts_of_a_line_are_one_record(self) -> None:
        a, b, c, d = cri("stdout", "P", "1"), cri("stdout", "P", "2"), cri("stdout", "F", "3"), cri("stdout", "F", "4")
        assert records("cri", d + a + b + c + d) == [joined(d), joined(a, b, c), joined(d), b""]

    def test_a_record_ends_where_neither_stream_is_open(self) -> None:
        a, b = cri("stdout", "P"), cri("stderr", "P")
        c, d = cri("stdout", "F"), cri("stderr", "F")
        assert records("cri", a + d + b + c + d + c) == [joined(a, d, b, c, d), joined(c), b""]

    @pytest.mark.parametrize("other", [b"no line\n", b"\n", b"2026 stdout X m\n"])
    def test_another_line_ends_the_record(self, other: bytes) -> None:
        a, b = cri("stdout", "P"), cri("stdout", "F")
        assert records("cri", a + a + other + b) == [joined(a, a), other[:-1], joined(b), b""]

    def test_an_open_line_waits_for_more_unless_nothing_comes(self) -> None:
        a, b = cri("stdout", "P"), cri("stdout", "F")
        assert records("cri", b + a + a + b"2026") == [joined(b), a + a + b"2026"]
        assert records("cri", b + a + a + b"2026", final=True) == [joined(b), joined(a, a), b"2026"]

    def test_a_record_over_the_limit_ends_at_the_last_line_that_fits(self) -> None:
        a, b = cri("stdout", "P", "x" * 60), cri("stdout", "F")
        assert records("cri", 5 * a + b, limit=2 * len(a)) == [joined(a, a), joined(a, a), joined(a, b), b""]
        assert records("cri", 5 * a + b, limit=10) == [*5 * [joined(a)], joined(b), b""]

    def test_tags_and_messages_that_look_like_tags(self) -> None:
        a, b = cri("stdout", "P:x"), cri("stdout", "F:y", " stdout P")
        assert records("cri", b + a + b) == [joined(b), joined(a, b), b""]


class TestDockerJson:
    def test_a_line_is_open_until_its_newline(self) -> None:
        a, b = docker("stdout", "1"), docker("stdout", "2\n")
        assert records("docker-json", b + a + a + b + b) == [joined(b), joined(a, a, b), joined(b), b""]

    @pytest.mark.parametrize("text", ["\\n", "\\\\n", "\\", '\\n","stream":"', "\n"])
    def test_backslashes_before_the_end(self, text: str) -> None:
        is_open = not text.endswith("\n")
        a, b = docker("stdout", text), docker("stdout", text + "\n")
        expected = [joined(a, b), joined(b)] if is_open else [joined(a), joined(b), joined(b)]
        assert records("docker-json", a + b + b) == [*expected, b""]

    def test_other_order_of_keys(self) -> None:
        a = b'{"stream":"stdout","log":"a"}\n'
        b = b'{"stream":"stdout", "log":"b\\n"}\n'
        assert records("docker-json", b + a + b) == [joined(b), joined(a, b), b""]


def binary(name: bytes, value: bytes) -> bytes:
    return name + b"\n" + len(value).to_bytes(8, "little") + value + b"\n"


class TestJournalExport:
    def test_an_empty_line_ends_an_entry(self) -> None:
        data = b"A=1\nB=2\n\nA=3\n\nA=4\n"
        assert records("journal-export", data) == [b"A=1\nB=2\n", b"A=3\n", b"A=4\n"]
        assert records("journal-export", data, final=True) == [b"A=1\nB=2\n", b"A=3\n", b"A=4", b""]

    def test_values_with_a_length_may_hold_anything(self) -> None:
        hard = binary(b"M", b"x\n\ny=1\n\n") + b"A=1\n"
        assert records("journal-export", b"A=0\n\n" + hard + b"\nA=2\n\n") == [b"A=0\n", hard, b"A=2\n", b""]
        for cut in range(6, 5 + len(hard)):
            assert records("journal-export", (b"A=0\n\n" + hard)[:cut]) == [b"A=0\n", hard[: cut - 5]]

    def test_a_length_that_is_wrong_breaks_its_lines_only(self) -> None:
        wrong = b"M\n" + (3).to_bytes(8, "little") + b"abcdef\n"
        assert records("journal-export", wrong + b"\nA=2\n\n")[-2:] == [b"A=2\n", b""]

    def test_an_entry_over_the_limit_ends_at_its_first_line(self) -> None:
        entry = b"A=" + b"1" * 50 + b"\nB=2\n"
        assert records("journal-export", entry + b"\nC=1\n\n", limit=20)[-2:] == [b"C=1\n", b""]


PIECES = {
    "cri": [cri("stdout", "P"), cri("stdout", "F"), cri("stderr", "P"), cri("stderr", "F"), cri("stdout", "F"), b"?\n"],
    "docker-json": [
        docker("stdout", "a"),
        docker("stdout", "a\n"),
        docker("stderr", "b"),
        docker("stderr", "\\n\n"),
        b"?\n",
    ],
    "journal-export": [b"A=1\n", b"\n", b"\n", binary(b"M", b"x\n\n=y"), b"B=\n"],
}


@pytest.mark.parametrize("framing", FRAMINGS)
@settings(max_examples=examples(60, least=5), deadline=None)
@given(data=st.data())
def test_any_pieces_in_any_reads(tmp_path_factory: pytest.TempPathFactory, framing: str, data: st.DataObject) -> None:
    whole = b"".join(data.draw(st.lists(st.sampled_from(PIECES[framing]), max_size=40)))
    world = World(Path(tmp_path_factory.mktemp("pieces")))
    options: dict[str, Any] = {
        "framing": framing,
        "last_line": "wait",
        "max_record_bytes": data.draw(st.sampled_from([64, 300, 10_000])),
    }
    world.write("log", b"")
    reader, found, at = world.open(world.source(read_bytes=1024, **options)), Records(), 0
    while at < len(whole):
        size = data.draw(st.integers(1, 400))
        world.append("log", whole[at : at + size])
        at += size
        found += drain(reader, per_poll=data.draw(st.integers(1, 5)))
        if data.draw(st.booleans()):
            reader = world.open(world.source(read_bytes=1024, **options), start=checkpointed(reader.position))
    at_once = drain(world.open(world.source(**options)))
    assert found == at_once
    world.close()
