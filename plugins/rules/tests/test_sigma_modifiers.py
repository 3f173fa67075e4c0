"""Modifiers of Sigma. Where pySigma's tests say what a modifier gives, those values are the expectations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from headrace.foundation.errors import OptionError
from headrace_rules.loading import load, load_strictly
from headrace_rules.model import Rejection, Rule
from headrace_rules.sigma import rule_of
from headrace_rules.sigma_fields import SigmaOptions, field_condition
from headrace_rules.sigma_values import SigmaError, Wildcard, parsed, transformed
from rules_world import engine_of, of_engine, plainly

NOTHING = SigmaOptions()


@pytest.mark.parametrize(
    ("value", "modifiers", "texts"),
    [
        ("foobar", ["base64"], ["Zm9vYmFy"]),
        ("foobar", ["base64offset"], ["Zm9vYmFy", "Zvb2Jhc", "mb29iYX"]),
        ("foobar", ["wide", "base64"], ["ZgBvAG8AYgBhAHIA"]),
        ("foobar", ["utf16le", "base64"], ["ZgBvAG8AYgBhAHIA"]),
        ("foobar", ["utf16", "base64"], ["//5mAG8AbwBiAGEAcgA="]),
        ("foobar", ["utf16be", "base64"], ["AGYAbwBvAGIAYQBy"]),
        ("ä", ["wide", "base64"], ["5AA="]),
        ("foo", ["wide"], ["f\0o\0o\0"]),
        ("-param-1", ["windash"], ["-param-1", "/param-1", "\u2013param-1", "\u2014param-1", "\u2015param-1"]),
        ("word", ["windash"], ["word"]),
        ("%name% %other%", ["expand"], ["a x", "a y", "b x", "b y"]),
        ("%a-name%$ 5 % or 6 %", ["expand"], ["dc1$ 5 % or 6 %"]),
    ],
)
def test_texts_that_modifiers_make(value: str, modifiers: list[str], texts: list[str]) -> None:
    placeholders = {"name": ["a", "b"], "other": ["x", "y"], "a-name": ["dc1"]}
    found = transformed(parsed(value), modifiers, placeholders)
    assert ["".join(part for part in one if isinstance(part, str)) for one in found] == texts


def test_dashes_of_two_parameters() -> None:
    found = transformed(parsed("-a *-b"), ["windash"], {})
    assert len(found) == 25
    assert ["/a ", Wildcard.ANY, "\u2015b"] in found


FRAME = pl.DataFrame(
    {
        "line": ["cmd /c foo_bar", "CMD -C FOO%BAR", None, "x\ny", "ends with foo", "IEX (bG9v"],
        "other": ["cmd", "FOO%bar", "z", "x\ny", "WITH", "foo"],
        "ip": ["10.1.2.3", "2001:db8::1", "nothing", None, "11.0.0.1", "10.255.0.0"],
        "port": [443, 80, None, 8443, 22, 4430],
        "flag": [True, False, None, True, False, True],
        "at": [
            "2026-05-06 03:00:00",
            "2026-05-06 04:00:00",
            None,
            "2026-05-06 03:59:59",
            "2026-05-06 23:00:00",
            "2025-01-01 00:00:00",
        ],
    }
).with_columns(pl.col("at").str.to_datetime())


@pytest.mark.parametrize(
    ("entry", "rows"),
    [
        ({"line|contains": "foo_"}, {0}),
        ({"line|contains": "foo%"}, {1}),
        ({"line|contains": ["foo_", "with"]}, {0, 4}),
        ({"line|contains|all": ["foo", "c"]}, {0, 1}),
        ({"line|contains|cased": "FOO"}, {1}),
        ({"line|windash|contains": "-c "}, {0, 1}),
        ({"line|windash|contains|all": ["/c", "cmd"]}, {0, 1}),
        ({"line|base64offset|contains": "loo"}, {5}),
        ({"line|re": "^CMD"}, {1}),
        ({"line|re|i": "^cmd"}, {0, 1}),
        ({"line|re|s": "x.y"}, {3}),
        ({"line|re|m": "^y$"}, {3}),
        ({"line|re": "^y$"}, set()),
        ({"ip|cidr": "10.0.0.0/8"}, {0, 5}),
        ({"ip|cidr": ["10.1.0.0/16", "2001:db8::/32"]}, {0, 1}),
        ({"line|fieldref": "other"}, {3}),
        ({"line|fieldref|contains": "other"}, {0, 1, 3, 4}),
        ({"line|fieldref|startswith": "other"}, {0, 3}),
        ({"line|fieldref|contains|cased": "other"}, {0, 3}),
        ({"line|exists": True}, {0, 1, 3, 4, 5}),
        ({"line|exists": False}, {2}),
        ({"port|gte": 443}, {0, 3, 5}),
        ({"port|lt": 80}, {4}),
        ({"port": 443}, {0}),
        ({"port": ["443", 80]}, {0, 1}),
        ({"port|startswith": 443}, {0, 5}),
        ({"port|endswith": "443"}, {0, 3}),
        ({"port|neq": 443}, {1, 2, 3, 4, 5}),
        ({"flag": True}, {0, 3, 5}),
        ({"at|hour": 3}, {0, 3}),
        ({"at|year": 2025}, {5}),
        ({"line": None}, {2}),
        ({"other|expand": "%cmds%"}, {0, 5}),
        ({"": ["WITH", "FOO%BAR"]}, {1, 4}),
        ({"|all": ["foo", "with"]}, {4}),
        ({"|re": "W.TH"}, {4}),
    ],
)
def test_conditions_of_fields(entry: dict[str, Any], rows: set[int]) -> None:
    options = SigmaOptions.of({"keywords": ["line", "other"], "placeholders": {"cmds": ["CMD", "foo"]}})
    rule = rule_of({"id": "r", "detection": {"s": entry, "condition": "s"}}, "here", options)
    assert isinstance(rule, Rule)
    plain = plainly([rule.expression], FRAME)
    assert {row for row, _ in plain[0]} == rows
    assert of_engine(engine_of([rule.expression], FRAME), FRAME) == plain


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("x|base65", "y", "did you mean 'base64'"),
        ("x|base64", "a*", "cannot encode a value with wildcards"),
        ("x|utf16", "a", "base64 or base64offset must follow"),
        ("x|cidr", "10.0.0.0/33", "cidr"),
        ("x|exists", "yes", "exists needs true or false"),
        ("x|gt", "y", "'y' is not a number"),
        ("x|expand", "%nobody%", "no values for %nobody%"),
        ("x", [], "has no values"),
        ("x", [{"y": 1}], "must be texts, numbers"),
        ('a"b', "y", "cannot be the name of a column"),
        ("", "word", "the option 'keywords' must name the columns"),
        ("x|windash", "-a " * 9, "more than 5,000 texts"),
    ],
)
def test_what_has_no_meaning_is_refused(key: str, value: object, reason: str) -> None:
    with pytest.raises(SigmaError, match=reason.replace("(", "\\(")):
        field_condition(key, value, NOTHING)


def test_numbers_match_texts_too() -> None:
    frame = pl.DataFrame({"port": ["443", "80", None], "flag": ["TRUE", "false", None]})
    for entry, rows in (({"port": 443}, {0}), ({"port|gt": 100}, {0}), ({"flag": True}, {0})):
        rule = rule_of({"id": "r", "detection": {"s": entry, "condition": "s"}}, "here")
        assert not isinstance(rule, Rejection)
        assert {row for row, _ in plainly([rule.expression], frame)[0]} == rows


def test_fields_are_mapped() -> None:
    options = SigmaOptions.of(
        {"fields": {"Image": "process.executable", "id.orig_h": '"id.orig_h"', "who": ["a", "b"]}}
    )
    assert field_condition("Image|endswith", "\\cmd.exe", options) == '"process"."executable" ILIKE \'%\\cmd.exe\''
    assert field_condition("id.orig_h", "x", options) == "\"id.orig_h\" ILIKE 'x'"
    assert field_condition("who", "x", options) == "(\"a\" ILIKE 'x' OR \"b\" ILIKE 'x')"


def test_rules_for_other_log_sources_are_left_out(tmp_path: Path) -> None:
    sources = ("{category: process_creation, product: windows}", "{category: process_creation, product: linux}",
               "{category: process_creation}", "{product: windows, service: security}")  # fmt: skip
    for number, source in enumerate(sources):
        (tmp_path / f"{number}.yml").write_text(
            f"title: t{number}\nlogsource: {source}\ndetection: {{s: {{x: y}}, condition: s}}"
        )
    options = SigmaOptions.of({"logsource": {"product": "windows", "category": "process_creation"}})
    assert [rule.id for rule in load_strictly(str(tmp_path), options)] == ["t0", "t2"]
    assert load(str(tmp_path), options).left_out == 2


def routed(rule_source: dict[str, str], options: SigmaOptions) -> str | None:
    """Return the condition of a rule for a log source; None: it is left out."""
    document = {"title": "t", "logsource": rule_source, "detection": {"s": {"x": "y"}, "condition": "s"}}
    rule = rule_of(document, "", options)
    assert isinstance(rule, Rule)
    return rule.expression if options.applies(rule_source) else None


def test_rows_of_several_log_sources() -> None:
    options = SigmaOptions.of({
        "fields": {"kind": "event.kind"},
        "logsource": [
            {"product": "linux", "category": "process_creation", "where": "type = 'execve'"},
            {"product": "linux", "service": "sshd", "where": {"kind": "ssh", "port": [22, 2222]}},
            {"category": "proxy"},
        ],
    })  # fmt: skip
    own = "(\"x\" ILIKE 'y')"
    assert routed({"product": "linux", "category": "process_creation"}, options) == f"(type = 'execve') AND {own}"
    assert routed({"category": "process_creation"}, options) == f"(type = 'execve') AND {own}"
    ssh = "(\"event\".\"kind\" ILIKE 'ssh' AND CAST(\"port\" AS STRING) IN ('22', '2222'))"
    assert routed({"product": "linux"}, options) == f"((type = 'execve') OR {ssh}) AND {own}", (
        "a rule of all of a product"
    )
    assert routed({"category": "proxy"}, options) == own[1:-1], "its rows are known by nothing"
    assert routed({"product": "windows"}, options) is None
    assert routed({}, options) == own[1:-1]


def test_events_of_windows_by_their_channel() -> None:
    options = SigmaOptions.of({"logsource": "windows"})
    found = {
        category: routed({"product": "windows", "category": category}, options)
        for category in ("ps_script", "file_delete")
    }
    assert found["ps_script"] is not None
    channels = "ILIKE ANY ('Microsoft-Windows-PowerShell/Operational', 'PowerShellCore/Operational')"
    assert found["ps_script"].startswith(f'("Channel" {channels} AND CAST("EventID" AS STRING) = \'4104\')')
    assert found["file_delete"] is not None
    assert "CAST(\"EventID\" AS STRING) IN ('23', '26')" in found["file_delete"]
    assert routed({"product": "windows", "service": "sysmon"}, options) == (
        "\"Channel\" ILIKE 'Microsoft-Windows-Sysmon/Operational' AND (\"x\" ILIKE 'y')"
    )  # not each of its categories
    assert routed({"product": "windows"}, options) == '"Channel" IS NOT NULL AND ("x" ILIKE \'y\')'
    assert routed({"product": "windows", "category": "file_access"}, options) is None, "it is in no channel"


@pytest.mark.parametrize(
    ("given", "reason"),
    [({"field": {}}, "unknown option 'field'"), ({"fields": []}, "fields of sigma is a mapping"), (3, "a mapping of options"),
     ({"logsource": {"os": "x"}}, "logsource of sigma has"), ({"logsource": 3}, "a mapping or a list of them"),
     ({"logsource": "window"}, "no log source is called 'window'"), ({"logsource": [{"where": "a = 1"}]}, "names product, category or"),
     ({"logsource": {"product": "x", "where": "a ="}}, "where of the logsource"),
     ({"logsource": [{"product": "x", "where": {}}]}, "fields with values")],
)  # fmt: skip
def test_wrong_options(given: Any, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        SigmaOptions.of(given)
