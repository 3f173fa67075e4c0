"""The verb ``parse_format``: the contract of operators, and which texts become rows and which dead letters."""

from __future__ import annotations

import json
from typing import Any

import headrace as hr
import pytest
from headrace.testing import MemorySink, MemorySource
from headrace_contract import OperatorContract
from headrace_pipeline.parse_format import ParseFormat


class TestParseFormat(OperatorContract):
    schema = {"text": "string", "payload": "string"}
    rows_out = "at most one"

    def make_spec(self) -> hr.OperatorSpec:
        return ParseFormat("json", on="payload", schema={"a": "int64", "b": "array<string>"})

    def bad_row(self) -> dict[str, Any]:
        return {"text": "t", "payload": "no JSON"}

    def unfit_schema(self) -> dict[str, Any]:
        return {"text": "string", "payload": "int64"}

    def make_rows(self, first: int, count: int) -> list[dict[str, Any]]:
        payloads = ['{"a": %d}', '{"b": ["%d", null]}', "{%d", None, '{"a": "x%d"}', ""]
        return [
            {"text": f"t{n}", "payload": (one % n if one and "%" in one else one)}
            for n in range(first, first + count)
            for one in [payloads[n % len(payloads)]]
        ]


def parsed(format: str, texts: list[str | None], **options: Any) -> tuple[list[dict[str, Any]], list[str]]:
    bodies = [json.dumps({"n": n, "text": text}).encode() for n, text in enumerate(texts)]
    rows, letters = MemorySink(), MemorySink()
    stream = hr.stream("test", "parse").from_(
        MemorySource({"q": bodies}), format="json", schema={"n": "int64", "text": "string"}
    )
    stream.parse_format(format, on="text", **options).dead_letters(lambda bad: bad.to(letters)).to(rows).run("light")
    return rows.rows, [row["reason"] for row in letters.rows]


def test_bad_texts_are_dead_letters_and_nulls_are_nulls() -> None:
    texts = ['{"a": 1}', None, "no", "", '{"a": 2, "é": 3}', None, '{"a": "x"}']
    rows, reasons = parsed("json", texts, schema={"a": "int64"})
    assert [(row["n"], row["a"]) for row in rows] == [(0, 1), (1, None), (4, 2), (5, None)]
    assert [row["text"] for row in rows] == [texts[row["n"]] for row in rows]
    assert len(reasons) == 3
    assert reasons[1] == "the body is empty"


def test_texts_with_newlines_and_nothing_but_bad_ones() -> None:
    rows, reasons = parsed("json", ['{\n"a":\n1}', "\n", '{"a": 2}'], schema={"a": "int64"})
    assert [row["a"] for row in rows] == [1, 2]
    assert len(reasons) == 1
    assert parsed("json", ["x", "y"], schema={"a": "int64"})[0] == []
    assert parsed("json", [None, None], schema={"a": "int64"}) == (
        [{"n": 0, "text": None, "a": None}, {"n": 1, "text": None, "a": None}], [],
    )  # fmt: skip


def test_other_formats_and_their_options() -> None:
    rows, reasons = parsed("logfmt", ["a=1 b=x", "a=y", None], schema={"a": "int64", "b": "string"})
    assert [(row["a"], row["b"]) for row in rows] == [(1, "x"), (None, None)]
    assert len(reasons) == 1
    rows, reasons = parsed("csv", ["1;x", "2;y"], schema={"a": "int64", "b": "string"}, delimiter=";")
    assert [(row["a"], row["b"]) for row in rows] == [(1, "x"), (2, "y")]
    rows, reasons = parsed("grok", ["%x", "5 apples"], pattern="^%{INT:count:int} %{WORD:what}$")
    assert [(row["count"], row["what"]) for row in rows] == [(5, "apples")]
    assert len(reasons) == 1


def test_what_does_not_fit() -> None:
    for options, message in (
        ({"format": "json"}, "needs a schema"),
        ({"format": "jsn"}, "no codec 'jsn'"),
        ({"format": "json", "schema": {"a": "int64"}, "indent": 1}, "unknown option 'indent'"),
        ({"format": "debezium-json", "schema": {"a": "int64"}}, "reads more than one text"),
    ):
        with pytest.raises(hr.JobError, match=message):
            ParseFormat(**options)
    spec = ParseFormat("json", on="text", schema={"a": "int64"})
    for schema, message in (
        ({"txt": "string"}, "unknown column 'text'"),
        ({"text": "int64"}, "does not contain text"),
        ({"text": "string", "a": "string"}, "'a' is a column already"),
    ):
        with pytest.raises(hr.PlanError, match=message):
            spec.output_schema(hr.Schema.of(schema))
