"""Rules from lists, YAML and .sql files: good ones are taken, bad ones are told one by one."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from headrace.foundation.errors import OptionError
from headrace_rules import loading
from headrace_rules.loading import load, load_strictly
from headrace_rules.model import Rule, RulesError
from rules_world import plainly

from tests.effort import examples

YAML = """
rules:
  - id: shadow
    expression: cmdline LIKE '%/etc/shadow%'
    severity: high
    labels: [credentials, linux]
    description: Somebody reads the password hashes.
  - id: root-shell
    expression: |
      process = 'bash'
      AND user = 'root'
"""
SQL = """
-- Rules of the web team. This line and others without a key are comments.
-- id: traversal
-- severity: critical
-- labels: web, owasp
url LIKE '%../%' AND status = 200;

-- id: semicolon
-- between
message LIKE '%;%'
  -- inside
  AND status > 1;
"""


def test_a_list_of_dicts_and_a_mapping() -> None:
    rules = load_strictly([{"id": "a", "expression": "x = 1", "severity": "low", "labels": ["l"]}, Rule("b", "y = 2")])
    assert [(rule.id, rule.severity, rule.labels) for rule in rules] == [("a", "low", ("l",)), ("b", "medium", ())]
    assert [rule.expression for rule in load_strictly({"a": "x = 1", "b": "y = 2"})] == ["x = 1", "y = 2"]


def test_values_that_yaml_cannot_make(tmp_path: Path) -> None:
    """A date that is none is a text: rules have one in fields that nothing reads. A wrong number is told, and only its file is refused."""
    (tmp_path / "a.yaml").write_text("- {id: one, expression: x = 1, labels: [2026-02-30]}")
    (tmp_path / "b.yaml").write_text("- {id: two, expression: !!int x}")
    (tmp_path / "c.yaml").write_text("- {id: three, expression: x = 3}")
    loaded = load(str(tmp_path))
    assert [(rule.id, rule.labels) for rule in loaded.rules] == [("one", ("2026-02-30",)), ("three", ())]
    assert "'x' is not a value of tag:yaml.org,2002:int" in str(loaded.rejections[0])
    assert loaded.rejections[0].place == f"{tmp_path}/b.yaml"


def test_files_by_pattern_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("- {id: two, expression: x = 2}\n---\n- {id: three, expression: x = 3}")
    (tmp_path / "a.yml").write_text(YAML)
    (tmp_path / "c.sql").write_text(SQL)
    rules = load_strictly(str(tmp_path / "*"))
    assert [rule.id for rule in rules] == ["shadow", "root-shell", "two", "three", "traversal", "semicolon"]
    assert rules[0] == Rule("shadow", "cmdline LIKE '%/etc/shadow%'", "high", ("credentials", "linux"),
                            "Somebody reads the password hashes.", f"{tmp_path}/a.yml, rule 1")  # fmt: skip
    assert rules[1].expression == "process = 'bash'\nAND user = 'root'"
    traversal = rules.by_id["traversal"]
    assert (traversal.severity, traversal.labels) == ("critical", ("web", "owasp"))
    assert traversal.expression == "url LIKE '%../%' AND status = 200"
    assert traversal.place == f"{tmp_path}/c.sql, line 3"
    assert rules.by_id["semicolon"].expression == "message LIKE '%;%'\n  AND status > 1"
    assert [rule.id for rule in load_strictly(tmp_path)] == ["shadow", "root-shell", "two", "three"]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"id": "a", "expresion": "x"}, "unknown field 'expresion'; did you mean 'expression'?"),
        ({"id": "a"}, "expression must be a text"),
        ({"expression": "x = 1"}, "id must be a text"),
        ({"id": "a b", "expression": "x"}, "an id has no blanks"),
        ({"id": 7, "expression": "x"}, "id must be a text"),
        ({"id": "a", "expression": "x", "severity": "hihg"}, "unknown severity 'hihg'; did you mean 'high'?"),
        ({"id": "a", "expression": "x", "labels": "l"}, "labels must be a list"),
        (5, "a rule is a mapping"),
    ],
)
def test_what_is_wrong_with_a_rule_is_told(entry: object, reason: str) -> None:
    loaded = load([{"id": "good", "expression": "x = 1"}, entry])  # type: ignore[list-item]
    assert [rule.id for rule in loaded.rules] == ["good"]
    (rejection,) = loaded.rejections
    assert reason in rejection.reason
    assert rejection.place == "rule 2"


def test_two_rules_with_one_id(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("- {id: same, expression: x = 1}\n- {id: same, expression: x = 2}")
    with pytest.raises(RulesError, match=r"the id is already used by .*a.yaml, rule 1"):
        load_strictly(str(tmp_path / "a.yaml"))


def test_a_file_that_is_no_yaml_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("- {id: one, expression: x = 1}")
    (tmp_path / "b.yaml").write_text("rules: [}")
    loaded = load(str(tmp_path / "*.yaml"))
    assert [rule.id for rule in loaded.rules] == ["one"]
    assert str(loaded.rejections[0]).startswith(f"{tmp_path}/b.yaml: this is not valid YAML:")


def test_yaml_makes_no_objects(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("- !!python/object/apply:os.system ['true']")
    assert "this is not valid YAML" in str(load(str(tmp_path / "a.yaml")).rejections[0])


def test_no_file_and_no_rule(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no file is called"):
        load(str(tmp_path / "*.yaml"))
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(OptionError, match=r"read only from \.yaml, \.yml and \.sql files"):
        load(str(tmp_path / "a.txt"))
    with pytest.raises(OptionError, match="there are no rules"):
        load_strictly([])


SIGMA = """
title: Download piped into a shell
id: 5f1b1a5e-1b7a-4b5e-9c3f-000000000001
level: high
tags: [attack.execution]
logsource: {product: linux}
detection:
  tools:
    process: [curl, wget]
  pipe:
    cmdline|contains|all: ['|', 'sh']
  hidden:
    - cmdline|endswith: '/tmp/.*x'
    - cmdline|re: 'a[0-9]+b'
  count:
    exit_code|gte: 1
    parent: null
  filter_root:
    user|startswith: 'ro?t\\*'
  condition: (tools and pipe or 1 of hid*) and not filter_root and not all of coun*
"""


def test_sigma(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(SIGMA)
    (rule,) = load_strictly(str(tmp_path / "a.yml"))
    assert rule.id == "5f1b1a5e-1b7a-4b5e-9c3f-000000000001"
    assert (rule.severity, rule.labels) == ("high", ("attack.execution",))
    rows = [("curl", "curl | sh", 0, "x", "bob"), ("CURL", "a|SH", 0, "x", "bob"), ("curl", "curl sh", 0, "x", "bob"),
            ("x", "y /tmp/.abcx", 0, "x", "bob"), ("x", "a12b", 0, "x", "root*"), ("x", "a12b", 1, None, "bob"),
            ("x", "A12B", 0, None, None), ("x", "a12b", 0, None, None)]  # fmt: skip
    frame = pl.DataFrame(rows, schema=["process", "cmdline", "exit_code", "parent", "user"], orient="row")
    assert {row for row, _ in plainly([rule.expression], frame)[0]} == {0, 1, 3, 7}


def test_sigma_numbers_in_texts(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("""
title: ports
detection:
  part: {address|endswith: 443, line|contains: [true, 8080]}
  number: {port: 443}
  condition: part and number
""")
    (rule,) = load_strictly(str(tmp_path / "a.yaml"))
    rows = [
        ("a:443", "at 8080", 443),
        ("a:443", "True", 443),
        ("a:443", "no", 443),
        ("a:80", "True", 443),
        ("b:443", "8080", 1),
    ]
    frame = pl.DataFrame(rows, schema=["address", "line", "port"], orient="row")
    assert {row for row, _ in plainly([rule.expression], frame)[0]} == {0, 1}


@pytest.mark.parametrize(
    ("detection", "reason"),
    [
        ("{a: {x|base65: y}, condition: a}", "modifier 'base65' is not supported"),
        ("{a: {x: y}, condition: b}", "there is no search identifier 'b'"),
        ("{a: {x: y}, condition: a | count() > 5}", "aggregations"),
        ("{a: [word], condition: a}", "keywords are values without a field"),
        ("{a: {x: y}, condition: a and}", "the condition is incomplete"),
        ("{a: {x: y}, timeframe: 5m, condition: a}", "timeframe"),
    ],
)
def test_sigma_that_is_not_understood_is_refused(detection: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(f"title: T\nid: t\ndetection: {detection}")
    assert reason in str(load(str(tmp_path / "a.yml")).rejections[0])


_YAML = """
title: &name 'it''s "quoted": \\ é \U0001f600'
other: *name
date: 2026-01-01
numbers: [4625, 0x10, 1.5, .inf, ~, yes, '007', 1_000]
folded: >-
  one
  two

  three
kept: |+
  C:\\Windows\\System32

flow: {a: b, c: [d, {e: f}], "g\\t": h}
? !!str 5
: as a key
<<: {merged: 1}
...
---
- second
"""


@pytest.mark.parametrize("seed", range(examples(300)))
def test_the_compiled_parser_gives_what_the_one_of_python_gives(seed: int) -> None:
    """But it takes tabs within texts, too, which YAML allows."""
    chance, text = random.Random(seed), list(_YAML)
    for _ in range(seed % 4):
        text[chance.randrange(len(text))] = chance.choice("\t\n :-?{}[],&*!|>'\"%@`#a\\\x85\u2028é")

    def values(read: Callable[[str], Any]) -> str:
        try:
            return repr(read("".join(text)))
        except (yaml.YAMLError, ValueError, TypeError):
            return "refused"

    of_python = values(lambda text: list(yaml.safe_load_all(text)))
    assert of_python in (values(loading._documents), "refused")
    assert seed % 4 or of_python != "refused"
