"""Plain evaluation to compare with, and rows and rules to try."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from headrace.flow.schema import Schema
from headrace_columnar.expressions import compile_predicate, evaluate
from headrace_rules.engine import EngineOptions, RuleEngine
from headrace_rules.scanning import hyperscan_is_installed
from hypothesis import strategies as st

SCANNERS = ["polars", *(["hyperscan"] if hyperscan_is_installed() else [])]


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


SCHEMA = {"a": pl.String(), "b": pl.String(), "n": pl.Int64(), "u": pl.UInt64(), "f": pl.Boolean(),
          "s": pl.Struct({"z": pl.String()}), "x": pl.Float64()}  # fmt: skip
PIECES = ["foo", "Foo", "k8s", "K8S", "\u212a8s", "ſoo", "İ", "ı", "ß", "SS", "é", "É", "日本", "%", "_", "\\", "'", "\n", " ",
          "\u0000", "\\u0041", '"', "1", "12", "/", "ﬁ", "fi", "Σ", "ς", "σ", "😀", "ⓐ", "Ⓐ", "–", "\u0307", "ŉ",
          "Å", "å", "\u212b", "ǅ", "ǆ", "привет", "ПРИВЕТ", "ẞ"]  # fmt: skip
TEXT = st.lists(st.sampled_from(PIECES), max_size=4).map("".join)
ROW = st.fixed_dictionaries({
    "a": st.none() | TEXT, "b": st.none() | TEXT, "n": st.none() | st.integers(-2, 3),
    "u": st.none() | st.sampled_from([0, 1, 2**64 - 1]), "f": st.none() | st.booleans(),
    "s": st.none() | st.fixed_dictionaries({"z": st.none() | TEXT}), "x": st.none() | st.sampled_from([0.0, 1.5, float("nan")]),
})  # fmt: skip


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


VALUE = st.sampled_from(
    ["a", "b", "lower(a)", "upper(b)", "trim(a)", "s.z", "lower(s.z)", "substring(a, 2)", "lower(trim(b))"]
)
CONSTANT = TEXT.map(quoted)
PATTERN = st.lists(st.sampled_from([*PIECES, "%", "%", "_"]), max_size=4).map("".join).map(quoted)
REGEX = st.sampled_from([
    "foo", "^foo", "foo$", "(?i)k8s", "(?i)soo|ß", "f.o", "(foo|K8S)+", "fo{1,2}", r"\d+", r"(?<!x)foo", r"(\d)\1", r"[f]oo",
    "(?s)foo.12", r"\bfoo\b", "foo|日本", r"\Afoo", "(?m)^12", "é|É", "(?i)É", "[^a]8s", r"\\u0041", r"\x66oo", "(?i)fi",
]).map(quoted)  # fmt: skip
