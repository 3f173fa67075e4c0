"""The verb ``rules`` in jobs."""

from __future__ import annotations

import json
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import ExpressionError, JobError, OptionError
from headrace.testing import MemorySink, MemorySource
from headrace_rules.model import RulesError

SCHEMA = {"cmd": "string", "n": "int64", "port": "string"}
ROWS = [("curl x", 2, "1"), ("wget", 3, "1"), ("curl z", 3, "9"), ("z", 0, "bad"), ("q", 0, "1"), (None, 3, "x")]
RULES = [
    {"id": "curl", "expression": "cmd LIKE '%curl%' AND n > 1", "severity": "high", "labels": ["x", "y"]},
    {"id": "three", "expression": "n = 3", "severity": "low", "labels": ["y", "z"]},
    {"id": "port", "expression": "CAST(port AS INT) > 5 AND cmd LIKE '%z%'"},
]


def run(rules: Any, *, shaped: bool = False, **options: Any) -> tuple[list[Any], list[Any]]:
    bodies = [json.dumps({"cmd": cmd, "n": n, "port": port}).encode() for cmd, n, port in ROWS]
    sink, bad = MemorySink(), MemorySink()
    stream = hr.stream("test", "rules").from_(MemorySource({"q": bodies}), format="json", schema=SCHEMA)
    stream = stream.dead_letters(lambda letters: letters.to(bad))
    if shaped:
        stream = stream.map(lambda row: row)
    stream.rules(rules, **options).to(sink).run("light")
    return sink.rows, bad.rows


@pytest.mark.parametrize("shaped", [False, True])
def test_matches(shaped: bool) -> None:
    rows, bad = run(RULES, shaped=shaped)
    assert [(row["cmd"], row["rule_ids"], row["rule_severity"], row["rule_labels"]) for row in rows] == [
        ("curl x", ["curl"], "high", ["x", "y"]),
        ("wget", ["three"], "low", ["y", "z"]),
        ("curl z", ["curl", "three", "port"], "high", ["x", "y", "z"]),
        (None, ["three"], "low", ["y", "z"]),
    ]
    assert [(row["offset"], row["reason"]) for row in bad] == [
        (3, "rule 'port': CAST('bad' AS int64) is impossible"),
        (5, "rule 'port': CAST('x' AS int64) is impossible"),
    ]


@pytest.mark.parametrize("shaped", [False, True])
def test_first(shaped: bool) -> None:
    rows, _ = run(RULES, output="first", shaped=shaped)
    found = [(row["rule_id"], row["rule_severity"], row["rule_labels"]) for row in rows]
    high, low = ("curl", "high", ["x", "y"]), ("three", "low", ["y", "z"])
    assert found == [high, low, high, low]


@pytest.mark.parametrize("shaped", [False, True])
def test_tag_gives_all_rows(shaped: bool) -> None:
    rows, bad = run(RULES, output="tag", shaped=shaped)
    assert [row["rule_ids"] for row in rows] == [["curl"], ["three"], ["curl", "three", "port"], [], [], ["three"]]
    assert [row["rule_severity"] for row in rows] == ["high", "low", "high", None, None, "low"]
    assert len(bad) == 2


def test_user_functions_in_rules() -> None:
    @hr.udf(returns="boolean")
    def is_short(text: str | None) -> bool:
        return text is not None and len(text) < 3

    rows, _ = run([{"id": "short", "expression": "IS_SHORT(cmd)"}], verdict_cache=100)
    assert [row["cmd"] for row in rows] == ["z", "q"]


def test_all_wrong_rules_are_told_when_the_job_is_built() -> None:
    rules = {"a": "cmdd = 'x'", "b": "cmd LIKE", "c": "cmd = 5", "d": "cmd RLIKE '(('", "e": "lowr(cmd) = 'x'", "f": "cmd",
             "good": "n = 1", "g": "cmd LIKE 'x!y' ESCAPE '!'", "h": "n = 1 AND x.y = 2"}  # fmt: skip
    with pytest.raises(RulesError) as raised:
        run(rules)
    assert [one.id for one in raised.value.rejections] == [*"abcdefgh"]
    text = str(raised.value)
    assert "8 rules are wrong (of 9)" in text
    assert "rule 'a' (rule 1): unknown column 'cmdd'" in text
    assert "did you mean 'cmd'?" in text
    assert isinstance(raised.value, JobError)


def test_every_wrong_rule_is_wrong_by_itself_too() -> None:
    for expression in (
        "cmdd = 'x'",
        "cmd",
        "cmd LIKE 5",
        "n LIKE '%x%'",
        "cmd IN (1)",
        "n BETWEEN 'a' AND 'b'",
        "n = TRUE",
    ):
        with pytest.raises(RulesError):
            run({"a": expression})
        stream = hr.stream("test", "where").from_(MemorySource({}), format="json", schema=SCHEMA)
        with pytest.raises(ExpressionError):
            stream.where(expression)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "tags"}, "did you mean 'tag'"),
        ({"scanner": "hyper"}, "hyperscan"),
        ({"output": "tag", "raw_scan": True}, "returns all rows"),
        ({"reload_interval": "5 s"}, "read from files"),
        ({"colour": 1}, "colour"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError, match=message):
        run(RULES, **options)


def test_columns_that_are_there_already() -> None:
    stream = hr.stream("test", "rules").from_(MemorySource({}), format="json", schema={**SCHEMA, "rule_ids": "string"})
    with pytest.raises(OptionError, match="'rule_ids' already"):
        stream.rules(RULES)
    stream.rules(RULES, output="first")


def test_the_source_decodes_what_rules_read() -> None:
    stream = hr.stream("test", "rules").from_(MemorySource({}), format="json", schema={**SCHEMA, "other": "string"})
    plan = stream.rules({"a": "n = 1"}).select("rule_ids").to(MemorySink()).plan()
    assert plan.decode_columns() == {"memory": ["n"]}
