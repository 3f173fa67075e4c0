"""Rules of an author with bad intent, or none: what is read stays within bounds, and is refused with the reason."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
import yaml
from headrace_rules import sigma
from headrace_rules.loading import load, load_strictly
from headrace_rules.model import Rejection, Rule
from hypothesis import given, settings
from hypothesis import strategies as st
from rules_world import plainly

from tests.effort import examples


def reason(directory: Path, text: str) -> str:
    (directory / "a.yaml").write_text(text)
    loaded = load(str(directory / "a.yaml"))
    assert not loaded.rules
    (rejection,) = loaded.rejections
    assert len(str(rejection)) < 2000
    return str(rejection)


def bomb(levels: int, *, merged: bool = False, cyclic: bool = False) -> str:
    """Each level holds the one before nine times."""
    own = "*{0}, " if cyclic else ""
    lines = ["a: &a {x: 1}" if merged else "a: &a [x, x, x]"]
    for number in range(levels):
        before, name = chr(97 + number), chr(98 + number)
        many = ", ".join([f"*{before}"] * 9)
        content = f"{{<<: [{many}], y{number}: 1}}" if merged else f"[{own.format(name)}{many}]"
        lines.append(f"{name}: &{name} {content}")
    return "\n".join(lines)


@pytest.mark.parametrize("merged", [False, True])
def test_aliases_that_stand_for_too_much(merged: bool, tmp_path: Path) -> None:
    assert "its YAML aliases expand to too many values" in reason(tmp_path, bomb(12, merged=merged))


@pytest.mark.parametrize("text", ["&a [*a]", "&a {id: *a}", "a: &a {b: [1, {c: *a}]}", bomb(12, cyclic=True)])
def test_alias_of_what_it_is_a_part_of(text: str, tmp_path: Path) -> None:
    assert "a YAML alias stands for a value that contains the alias itself" in reason(tmp_path, text)


@pytest.mark.parametrize("text", ["[" * 5000, "- " * 5000 + "x", "{a: " * 5000, "? " * 5000, "[" * 51 + "]" * 51])
def test_values_within_each_other(text: str, tmp_path: Path) -> None:
    assert "values nest deeper than 50 levels" in reason(tmp_path, text)


def test_aliases_of_ordinary_rules(tmp_path: Path) -> None:
    shared = "- &base {id: one, expression: x = 1, labels: &labels [a, b]}\n"
    (tmp_path / "a.yaml").write_text(
        shared + "".join(f"- {{<<: *base, id: r{n}, labels: *labels}}\n" for n in range(50))
    )
    assert [rule.labels for rule in load_strictly(str(tmp_path / "a.yaml"))] == [("a", "b")] * 51


def sigma_of(condition: str, **searches: object) -> Rule | Rejection:
    return sigma.rule_of({"id": "r", "detection": {**searches, "condition": condition}}, "here")


@pytest.mark.parametrize(
    "condition", ["not " * 5000 + "s", "(" * 5000 + "s" + ")" * 5000, "(" * 5000, "not (" * 101 + "s" + ")" * 101]
)
def test_sigma_condition_that_nests_too_deeply(condition: str) -> None:
    found = sigma_of(condition, s={"x": "y"})
    assert isinstance(found, Rejection)
    assert "the condition nests deeper than 100 levels" in str(found)


@pytest.mark.parametrize("count", [50, 51, 700, 2600])
def test_sigma_with_many_values(count: int) -> None:
    """Lists of addresses or hashes have hundreds of entries."""
    wanted = [f"v{number}" for number in range(count)]
    begins = [f"w{number}-" for number in range(count)]
    searches = {"s1": {"x": wanted}, "s2": {"x|startswith": begins}, "t": [{"y": each} for each in wanted]}
    rule = sigma_of("1 of s* and not t", **searches)
    assert isinstance(rule, Rule)
    texts = ["v0", f"v{count - 1}", f"v{count}", f"w{count - 1}-x", "v1"]
    frame = pl.DataFrame({"x": texts, "y": ["-", "-", "-", "-", f"V{count // 2}"]})
    assert {row for row, _ in plainly([rule.expression], frame)[0]} == {0, 1, 3}


@settings(max_examples=examples(150), deadline=None)
@given(st.text(alphabet="abx&*[]{}:,-?! \n<'\"|>#%", max_size=60))
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("rules") / "a.yaml"
    path.write_text(text)
    loaded = load(str(path))
    try:
        list(yaml.safe_load_all(text))
    except (yaml.YAMLError, ValueError, RecursionError):
        assert loaded.rejections
