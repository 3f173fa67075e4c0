"""What tests of rules share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from headrace.schema import Schema
from headrace_columnar.expressions import compile_predicate, evaluate
from headrace_rules.engine import EngineOptions, RuleEngine


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))


def engine_of(texts: Sequence[str], frame: pl.DataFrame, **options: object) -> RuleEngine:
    return RuleEngine(texts, Schema(frame.schema), {}, EngineOptions(cache=False, background=False, **options))  # type: ignore[arg-type]


Pairs = set[tuple[int, int]]


def plainly(texts: Sequence[str], frame: pl.DataFrame, functions: object = None) -> tuple[Pairs, Pairs]:
    """Return (row, rule) of matches and of failures, each rule evaluated by itself on all rows."""
    matches: Pairs = set()
    failures: Pairs = set()
    for number, text in enumerate(texts):
        compiled = compile_predicate(text, Schema(frame.schema), functions)  # type: ignore[arg-type]
        values, failed = evaluate(compiled, frame)
        matches |= {(row, number) for row in values.arg_true().to_list()}
        failures |= {(row, number) for row, _ in failed}
    return matches, failures


def of_engine(engine: RuleEngine, frame: pl.DataFrame) -> tuple[Pairs, Pairs]:
    found = engine.evaluate(frame)
    assert found.pairs.tolist() == sorted(set(found.pairs.tolist()))
    matches = set(zip(found.rows.tolist(), found.rule_numbers.tolist(), strict=True))
    return matches, {(row, rule) for row, rule, _ in found.failures}
