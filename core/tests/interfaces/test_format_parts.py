"""What formats share: texts of bodies, reasons, columns that are always the same, formats that are only read."""

from __future__ import annotations

import headrace as hr
import polars as pl
import pytest
from headrace.interfaces.format_parts import ReadOnlyCodec, check_fixed_columns, texts_of

COLUMNS = hr.Schema.of({"time": "timestamp", "message": "string"})


class Lines(ReadOnlyCodec):
    name = "lines"

    def decoder(self, schema: hr.Schema, columns: object = None) -> hr.Decoder:
        raise NotImplementedError


def test_texts_without_a_fault_are_all_of_the_bodies() -> None:
    texts, rows, bad = texts_of(hr.Bodies.of([b"a", "é".encode(), b""]), 10)
    assert (texts.to_list(), rows, bad) == (["a", "é", ""], None, [])
    texts, rows, bad = texts_of(hr.Bodies.of([]), 10)
    assert (texts.to_list(), texts.dtype, rows, bad) == ([], pl.String(), None, [])


def test_each_bad_body_is_told_with_its_row() -> None:
    texts, rows, bad = texts_of(hr.Bodies.of([b"a", b"xx\xff", b"too long", b"b"]), 4)
    assert texts.to_list() == ["a", "b"]
    assert rows is not None
    assert rows.tolist() == [0, 3]
    assert bad == [
        hr.BadBody(1, "not valid UTF-8 at byte 2: invalid start byte"),
        hr.BadBody(2, "the body has 8 bytes, more than max_body_bytes = 4"),
    ]


def test_latin_1_is_read_where_it_is_asked_for() -> None:
    texts, rows, bad = texts_of(hr.Bodies.of([b"\xe9", "é".encode()]), 4, latin_1=True)
    assert texts.to_list() == ["é", "é"]
    assert rows is not None
    assert (rows.tolist(), bad) == ([0, 1], [])


def test_fixed_columns_are_those_of_the_format() -> None:
    check_fixed_columns(COLUMNS, COLUMNS, "lines")
    check_fixed_columns({"message": pl.String()}, COLUMNS, "lines")
    with pytest.raises(hr.OptionError, match=r"(?s)no column 'mesage'.*did you mean 'message'"):
        check_fixed_columns({"mesage": pl.String()}, COLUMNS, "lines")
    with pytest.raises(hr.OptionError, match="'message' has a different type in this format"):
        check_fixed_columns({"message": pl.Int64()}, COLUMNS, "lines")


def test_a_format_that_is_only_read_says_so() -> None:
    with pytest.raises(hr.PlanError, match="the format 'lines' can only be read"):
        Lines().encoder(None)
