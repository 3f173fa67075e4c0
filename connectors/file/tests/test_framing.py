"""Where records end: in arrays as in words, whatever the cut."""

from __future__ import annotations

import csv
import io

import pytest
from headrace_file.framing import CsvFraming, NewlineFraming, find_byte
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

UNLIMITED = 10**9
csv_bytes = st.lists(
    st.sampled_from([b'"', b'"', b",", b"\n", b"\r\n", b"\r", b"a", b"bc", b'""', b'","', b'"\n"']), max_size=40
).map(b"".join)


def csv_ends(data: bytes, *, final: bool, limit: int) -> list[int]:
    """The rule in words, one character at a time."""
    ends: list[int] = []
    at = 0
    while at < len(data):
        end = _well_formed_end(data, at)
        if end is not None and end >= 0 and end - at <= limit:
            ends.append(end)
        elif end is not None and end < 0 and not final and len(data) - at <= limit:
            break
        else:
            first = data.find(b"\n", at)
            if first < 0:
                break
            ends.append(first)
        at = ends[-1] + 1
    return ends


def _well_formed_end(data: bytes, at: int) -> int | None:
    """Return where the record ends, -1 when it is unfinished, None when it breaks the rules."""
    while True:
        if data[at : at + 1] == b'"':
            at += 1
            while True:
                close = data.find(b'"', at)
                if close < 0:
                    return -1
                if data[close + 1 : close + 2] == b'"':
                    at = close + 2
                    continue
                break
            at = close + 1
            if data[at : at + 1] == b"\r" and data[at + 1 : at + 2] in (b"\n", b""):
                at += 1
            if at == len(data):
                return -1
            if data[at : at + 1] == b"\n":
                return at
            if data[at : at + 1] != b",":
                return None
        else:
            stops = [place for place in (data.find(b",", at), data.find(b"\n", at)) if place >= 0]
            if not stops:
                return -1
            at = min(stops)
            if data[at : at + 1] == b"\n":
                return at
        at += 1


class TestNewlines:
    @settings(deadline=None)
    @given(st.binary(max_size=200).map(lambda data: data.replace(b"a", b"\n")), st.integers(0, 5))
    def test_every_newline_ends_a_record(self, data: bytes, begin: int) -> None:
        found = NewlineFraming().ends(data, begin, final=False, limit=UNLIMITED).tolist()
        assert found == [i for i, byte in enumerate(data) if byte == 10 and i >= begin]

    def test_blocks_are_joined(self) -> None:
        data = (b"x" * 999 + b"\n") * 1000
        assert find_byte(data, 10).tolist() == list(range(999, 1_000_000, 1000))
        assert find_byte(data, 10, 500_000).tolist() == list(range(500_999, 1_000_000, 1000))

    def test_nothing_found(self) -> None:
        assert find_byte(b"", 10).tolist() == find_byte(b"abc", 10).tolist() == []


class TestCsv:
    @settings(max_examples=examples(400), deadline=None)
    @given(csv_bytes, st.booleans(), st.sampled_from([3, 6, UNLIMITED]))
    def test_arrays_do_what_the_rule_says(self, data: bytes, final: bool, limit: int) -> None:
        found = CsvFraming().ends(data, 0, final=final, limit=limit).tolist()
        assert found == csv_ends(data, final=final, limit=limit)

    @settings(max_examples=examples(200), deadline=None)
    @given(csv_bytes, st.integers(0, 60), st.sampled_from([3, 6, UNLIMITED]))
    def test_a_shorter_read_finds_the_same_records(self, data: bytes, cut: int, limit: int) -> None:
        framing = CsvFraming()
        whole = framing.ends(data, 0, final=False, limit=limit).tolist()
        part = framing.ends(data[:cut], 0, final=False, limit=limit).tolist()
        assert part == whole[: len(part)]

    @settings(max_examples=examples(100), deadline=None)
    @given(
        st.lists(st.lists(st.text('a,"\n;', max_size=6), min_size=2, max_size=3), max_size=8),
        st.sampled_from(["\n", "\r\n"]),
        st.integers(0, 3),
    )
    def test_what_csv_writers_write(self, rows: list[list[str]], line_end: str, begin: int) -> None:
        written = io.StringIO()
        lengths = [csv.writer(written, lineterminator=line_end).writerow(row) for row in rows]
        data = b"#" * begin + written.getvalue().encode()
        ends = CsvFraming().ends(data, begin, final=False, limit=UNLIMITED).tolist()
        assert [end + 1 for end in ends] == [begin + sum(lengths[: n + 1]) for n in range(len(rows))]

    def test_a_broken_line_leaves_its_neighbours_alone(self) -> None:
        data = b'1,good\n2,"never closed\n3,"fine"\n4,good\n'
        assert CsvFraming().ends(data, 0, final=True, limit=UNLIMITED).tolist() == [6, 22, 31, 38]

    def test_an_open_quote_waits_for_its_end(self) -> None:
        framing = CsvFraming()
        assert framing.ends(b'1,"a\nb\n', 0, final=False, limit=UNLIMITED).tolist() == []
        assert framing.ends(b'1,"a\nb\n"\n', 0, final=False, limit=UNLIMITED).tolist() == [8]

    def test_an_open_quote_waits_for_no_more_than_the_limit(self) -> None:
        data = b'1,"a\n' + b"x" * 20
        assert CsvFraming().ends(data, 0, final=False, limit=24).tolist() == [4]
        assert CsvFraming().ends(data, 0, final=False, limit=25).tolist() == []

    @pytest.mark.parametrize(("delimiter", "quote"), [(";", "'"), ("\t", '"'), ("|", "^"), (".", "$")])
    def test_other_characters(self, delimiter: str, quote: str) -> None:
        data = f"1{delimiter}{quote}a\n{quote}{quote}b{quote}\n2{delimiter}x\n".encode()
        assert CsvFraming(delimiter, quote).ends(data, 0, final=False, limit=UNLIMITED).tolist() == [9, 13]
