"""The backend against the project's own reader of Sigma rules: both must match the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from headrace.flow.schema import Schema
from headrace_columnar.expressions import compile_predicate, evaluate
from headrace_pysigma import HeadraceBackend
from headrace_rules.loading import load_strictly
from headrace_rules.model import Rule
from headrace_rules.sigma import rule_of
from headrace_rules.sigma_fields import SigmaOptions
from sigma.collection import SigmaCollection
from sigma.exceptions import SigmaError
from sigma.plugins import InstalledSigmaPlugins

FRAME = pl.DataFrame(
    {
        "line": ["cmd /c foo_bar", "CMD -C FOO%BAR", None, "x\ny", "ends with foo", "IEX (bG9v", "a*b\\c?"],
        "other": ["cmd", "FOO%bar", "z", "x\ny", "WITH", "foo", ""],
        "ip": ["10.1.2.3", "2001:db8::1", "nothing", None, "11.0.0.1", "10.255.0.0", ""],
        "port": [443, 80, None, 8443, 22, 4430, 0],
        "flag": [True, False, None, True, False, True, False],
        "at": ["2026-05-06 03:00:00", "2026-05-06 04:00:00", None, "2026-05-06 03:59:59", "2026-05-06 23:00:00",
               "2025-01-01 00:00:00", "2025-01-01 00:00:01"],
        "process": [{"name": "a.exe"}, {"name": "B.EXE"}, {"name": None}, {"name": "c"}, {"name": "aa"}, {"name": ""}, {"name": "x"}],
    }
).with_columns(pl.col("at").str.to_datetime())  # fmt: skip
DETECTIONS: list[dict[str, Any]] = [
    *({"s": entry, "condition": "s"} for entry in (
        {"line|contains": "foo_"}, {"line|contains": "foo%"}, {"line|contains": ["foo_", "with"]}, {"line": "*foo*"},
        {"line|contains|all": ["foo", "c"]}, {"line|contains|cased": "FOO"}, {"line|startswith": ["cmd", "iex"]},
        {"line": "a\\*b\\\\c\\?"}, {"line": "c?d*"}, {"line|windash|contains": "-c "}, {"line|windash|contains|all": ["/c", "cmd"]},
        {"line|base64offset|contains": "loo"}, {"line|re": "^CMD"}, {"line|re|i": "^cmd"}, {"line|re|s": "x.y"}, {"line|re|m": "^y$"},
        {"ip|cidr": "10.0.0.0/8"}, {"ip|cidr": ["10.1.0.0/16", "2001:db8::/32"]}, {"line|fieldref": "other"},
        {"line|fieldref|startswith": "other"}, {"line|exists": True}, {"line|exists": False}, {"port|gte": 443}, {"port|lt": 80},
        {"port": 443}, {"port": ["443", 80]}, {"port|startswith": "443"}, {"port|endswith": "443"}, {"port|neq": 443}, {"flag": True},
        {"at|hour": 3}, {"at|year": 2025}, {"line": None}, {"line": ""}, {"process.name|endswith": ".exe"}, {"line": ["x*", None, "80"]},
        {"line|contains": "foo", "port|gt": 50}, {"other": "1 \' OR"},
    )),
    *({"s": entry, "condition": "s"} for entry in (["WITH", "FOO%BAR"], {"|all": ["foo", "with"]}, ["x", {"port": 80}])),
    {"a": {"line|contains": "foo"}, "b": {"other": "cmd"}, "condition": "a and not b"},
    {"a1": {"line|contains": "foo"}, "a2": {"port": 80}, "b": {"flag": True}, "condition": "1 of a* or not b"},
    {"a1": {"line|contains": "foo"}, "a2": {"port|gt": 79}, "_b": {"flag": True}, "condition": "all of them"},
    {"a1": {"line|contains": "foo"}, "a2": {"port|gt": 79}, "condition": "not (a1 or a2)"},
    {"a": {"line|contains": "foo"}, "b": {"port": 80}, "condition": "not 1 of a or all of b"},
]  # fmt: skip
OPTIONS = SigmaOptions.of({"keywords": ["line", "other"]})
BACKEND = HeadraceBackend(keywords=["line", "other"])


def document(detection: Any, **more: Any) -> dict[str, Any]:
    return {"title": "A rule", "id": "929a690e-bef0-4204-a928-ef5e620d6fcc", "logsource": {"category": "test"},
            "detection": detection, **more}  # fmt: skip


def converted(detection: Any, output_format: str | None = None, **more: Any) -> Any:
    return BACKEND.convert(SigmaCollection.from_dicts([document(detection, **more)]), output_format)


def rows(expression: str) -> list[int]:
    found, failures = evaluate(compile_predicate(expression, Schema(FRAME.schema), None), FRAME)
    assert not failures
    return found.fill_null(False).arg_true().to_list()


def test_the_rules_match_rows() -> None:
    """What is compared below is not empty on both sides throughout."""
    assert sum(bool(rows(converted(each)[0])) for each in DETECTIONS) > 35


@pytest.mark.parametrize("detection", DETECTIONS, ids=str)
def test_both_match_the_same_rows(detection: dict[str, Any]) -> None:
    own = rule_of(document(detection), "here", OPTIONS)
    assert isinstance(own, Rule)
    (expression,) = converted(detection)
    assert rows(expression) == rows(own.expression)


def test_rules_as_a_file(tmp_path: Path) -> None:
    text = converted({"s": {"line": "x"}, "condition": "s"}, "rules", level="high", tags=["attack.t1003.008"])
    assert yaml.safe_load(text) == [
        {"id": "929a690e-bef0-4204-a928-ef5e620d6fcc", "expression": "\"line\" ILIKE 'x'", "severity": "high",
         "labels": ["attack.t1003.008"], "description": "A rule"},
    ]  # fmt: skip
    (tmp_path / "rules.yml").write_text(text)
    (rule,) = load_strictly(tmp_path / "rules.yml")
    assert (rule.severity, rule.labels) == ("high", ("attack.t1003.008",))


def test_several_conditions_are_several_rules() -> None:
    text = converted({"a": {"line": "x"}, "b": {"line": "y"}, "condition": ["a", "b"]}, "rules")
    assert [each["id"][-2:] for each in yaml.safe_load(text)] == ["cc", "-2"]


@pytest.mark.parametrize(
    ("detection", "reason"),
    [
        ({"s": {"line|expand": "%names%"}, "condition": "s"}, "placeholder %names% has no values"),
        ({"s": {'a"b': "x"}, "condition": "s"}, "cannot be the name of a column"),
    ],
)
def test_what_has_no_meaning_is_an_error_of_pysigma(detection: dict[str, Any], reason: str) -> None:
    with pytest.raises(SigmaError, match=reason):
        converted(detection)


def test_keywords_need_columns_and_correlations_another_reader() -> None:
    with pytest.raises(SigmaError, match="option keywords"):
        HeadraceBackend().convert(SigmaCollection.from_dicts([document({"s": ["x"], "condition": "s"})]))
    counted = {
        "type": "event_count",
        "rules": ["one"],
        "group-by": ["other"],
        "timespan": "1m",
        "condition": {"gte": 3},
    }
    both = [document({"s": {"line": "x"}, "condition": "s"}, name="one"), {"title": "Many", "correlation": counted}]
    with pytest.raises((SigmaError, NotImplementedError), match="correlat"):
        BACKEND.convert(SigmaCollection.from_dicts(both))


def test_pysigma_finds_the_backend() -> None:
    found: dict[str, object] = dict(InstalledSigmaPlugins.autodiscover().backends)
    assert found["headrace"] is HeadraceBackend
