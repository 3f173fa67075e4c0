"""What conditions need survives on disk, and is used only where parsing would give the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace.interfaces.functions import resolve
from headrace.jobs.dsl import FunctionCatalog
from headrace_rules import condition_cache, preparing
from headrace_rules.condition_cache import ConditionCache
from headrace_rules.engine import EngineOptions, RuleEngine
from headrace_rules.prepared import PreparedCondition, Preparer
from hypothesis import given, settings
from hypothesis import strategies as st
from rules_world import CONSTANT, PATTERN, REGEX, ROW, SCHEMA, VALUE, of_engine, plainly

from tests.effort import examples

COLUMNS = Schema(SCHEMA)
TEXTS = [f"a = 'v{number}' AND lower(b) LIKE '%w{number}%'" for number in range(1_000)]
CONDITIONS = st.one_of(
    st.builds("{} = {}".format, VALUE, CONSTANT),
    st.builds("{} LIKE {}".format, VALUE, PATTERN),
    st.builds("{} ILIKE {}".format, VALUE, PATTERN),
    st.builds("{} RLIKE {}".format, VALUE, REGEX),
    st.sampled_from(["n = 1", "n IN (1, 2)", "u = 18446744073709551615", "NOT f", "x > 1", "CAST(a AS INT) = 12", "n = 1 OR a IS NULL"]),
)  # fmt: skip


def preparer_of(place: Path, functions: Mapping[str, Any] | None = None, schema: Schema = COLUMNS) -> Preparer:
    return Preparer(schema, functions or {}, stored=ConditionCache(place))


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are parsed."""
    found: list[str] = []
    parse = preparing.prepared

    def counted(text: str, preparer: Preparer) -> PreparedCondition:
        found.append(text)
        return parse(text, preparer)

    monkeypatch.setattr(preparing, "prepared", counted)
    return found


def same(text: str) -> str:
    return text


def told(condition: PreparedCondition) -> tuple[object, ...]:
    return (
        condition.text,
        condition.need,
        condition.equalities,
        condition.columns,
        condition.is_whole,
        condition.calls,
    )


@settings(max_examples=examples(15), deadline=None)
@given(
    parts=st.lists(st.tuples(CONDITIONS, CONDITIONS, st.sampled_from(["AND", "OR"])), min_size=20, max_size=24),
    rows=st.lists(ROW, min_size=1, max_size=5),
)
def test_conditions_of_the_disk_are_those_of_their_texts(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[str, str, str]], rows: list[dict[str, Any]]
) -> None:
    place = tmp_path_factory.mktemp("cache")
    texts = list(dict.fromkeys(f"({one}) {word} ({other})" for one, other, word in parts))
    first, second, plain = preparer_of(place), preparer_of(place), Preparer(COLUMNS)
    first.prepare_many(texts)
    second.prepare_many(texts)
    assert [told(second.prepare(text)) for text in texts] == [told(plain.prepare(text)) for text in texts]
    frame = pl.DataFrame(rows, schema=SCHEMA)
    engine = RuleEngine(texts, COLUMNS, {}, EngineOptions(cache=False, background=False), second)
    assert of_engine(engine, frame) == plainly(texts, frame)


def test_a_second_process_parses_only_what_it_verifies(tmp_path: Path, parsed: list[str]) -> None:
    preparer_of(tmp_path).prepare_many(TEXTS)
    assert parsed == TEXTS
    parsed.clear()
    again = preparer_of(tmp_path)
    again.prepare_many(TEXTS)
    assert parsed == []
    assert len(again.parts(again.prepare(TEXTS[3])).cheap) == 2
    assert parsed == [TEXTS[3]]


def test_a_changed_rule_costs_the_parsing_of_its_pack(tmp_path: Path, parsed: list[str]) -> None:
    preparer_of(tmp_path).prepare_many(TEXTS)
    parsed.clear()
    preparer_of(tmp_path).prepare_many([*TEXTS[:500], "a = 'new'", *TEXTS[501:]])
    assert "a = 'new'" in parsed
    assert len(parsed) < 800
    parsed.clear()
    running = preparer_of(tmp_path)
    running.prepare_many(TEXTS)
    changed = [*TEXTS[:700], "a = 'newer'", *TEXTS[700:]]
    running.prepare_many(changed)  # rules are replaced while a job runs: only the new one is parsed
    assert parsed == ["a = 'newer'"]
    preparer_of(tmp_path).prepare_many(changed)
    assert parsed == ["a = 'newer'"]


@pytest.mark.parametrize(
    "damage", [lambda c: c[:-1], lambda c: c[:40] + b"x" + c[41:], lambda c: b"", lambda c: b"z" + c]
)
def test_what_is_damaged_is_parsed_again(damage: Callable[[bytes], bytes], tmp_path: Path, parsed: list[str]) -> None:
    texts = TEXTS[:20]
    preparer_of(tmp_path).prepare_many(texts)
    for file in tmp_path.glob("*.conditions"):
        file.write_bytes(damage(file.read_bytes()))
    parsed.clear()
    preparer_of(tmp_path).prepare_many(texts)
    assert parsed == texts


def test_what_others_could_have_written_is_not_read(tmp_path: Path, parsed: list[str]) -> None:
    texts = TEXTS[:20]
    preparer_of(tmp_path).prepare_many(texts)
    tmp_path.chmod(0o777)
    preparer_of(tmp_path).prepare_many(texts)
    assert parsed == texts * 2


def test_other_columns_and_other_code_have_their_own(
    tmp_path: Path, parsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"n = {number}" for number in range(20)]
    preparer_of(tmp_path).prepare_many(texts)
    other = preparer_of(tmp_path, schema=Schema({**SCHEMA, "n": pl.Float64()}))
    other.prepare_many(texts)
    assert other.prepare("n = 1").need is None  # only whole numbers and texts are looked up
    assert parsed == texts * 2
    monkeypatch.setattr(condition_cache, "_environment", lambda: b"another version")
    preparer_of(tmp_path).prepare_many(texts)
    assert parsed == texts * 3


def test_conditions_that_call_user_functions_are_always_parsed(tmp_path: Path, parsed: list[str]) -> None:
    texts = [f"lower(a) = 'v{number}'" for number in range(20)]
    preparer_of(tmp_path).prepare_many(texts)
    assert preparer_of(tmp_path).prepare(texts[0]).need is not None
    parsed.clear()
    own = FunctionCatalog({"lower": resolve(same, name="lower", returns="string")})
    mine = preparer_of(tmp_path, own)
    mine.prepare_many(texts)
    assert parsed == texts
    assert {mine.prepare(text).need for text in texts} == {None}
    preparer_of(tmp_path, own).prepare_many(texts)
    assert parsed == texts * 2


def test_a_wrong_condition_stays_wrong(tmp_path: Path) -> None:
    texts = [*TEXTS[:20], "nowhere = 1", "a = 'half \ud800'"]
    for _ in range(2):
        preparer = preparer_of(tmp_path)
        preparer.prepare_many(texts)
        with pytest.raises(ExpressionError, match="nowhere"):
            preparer.prepare("nowhere = 1")


_JOB = """
import sys
import headrace as hr

rules = [{"id": f"rule-{n}", "expression": f"text LIKE '%word{n}%' AND n = {n}"} for n in range(20)]
rows = hr.stream("tests", "imports").from_file("in.ndjson", format="json", schema={"text": "string", "n": "int64"})
print(rows.rules(rules).to_file(sys.argv[1], format="json").run("light", show_progress=False).records_read)
print(*sorted(sys.modules))
"""


def test_a_process_that_finds_its_rules_on_disk_does_not_import_what_parses_them(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text('{"text": "nothing", "n": 1}\n')
    environment = {**os.environ, "HEADRACE_CACHE": str(tmp_path / "cache")}
    found = []
    for out in ("one", "other"):
        command = [sys.executable, "-c", _JOB, out]
        made = subprocess.run(command, cwd=tmp_path, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        read, modules = made.stdout.splitlines()
        assert read == "1"
        found.append(set(modules.split()))
    assert "sqlglot" in found[0]
    assert "sqlglot" not in found[1]
    assert not [name for name in found[1] if name.startswith("headrace_light.shared")]
