"""Regular expressions: no value makes one slow, a pattern from a column gives what the same constant gives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, ExpressionError
from headrace_columnar import regular_expressions
from headrace_columnar.expressions import compile_expression, evaluate

SCHEMA = Schema({"s": pl.String(), "p": pl.String(), "g": pl.Int64()})
#: In Python's re, this takes 2**35 steps for the second text.
BACKTRACKING = r"^(?=a)(a|a|aa)*$"
HOSTILE = "a" * 35 + "!"


def frame(texts: list[str | None], patterns: list[str | None] | None = None, group: int = 0) -> pl.DataFrame:
    return pl.DataFrame(
        {"s": texts, "p": patterns or [None] * len(texts), "g": [group] * len(texts)}, schema=dict(SCHEMA)
    )


@pytest.mark.parametrize(
    ("call", "good"),
    [
        ("s RLIKE '{p}'", True),
        ("regexp_like(s, '{p}')", True),
        ("regexp_extract(s, '{p}')", "aaa"),
        ("regexp_extract_all(s, '{p}')", ["aaa"]),
        ("regexp_replace(s, '{p}', 'x')", "x"),
        ("regexp_count(s, '{p}')", 1),
        ("regexp_substr(s, '{p}')", "aaa"),
        ("regexp_instr(s, '{p}')", 1),
    ],
)
def test_a_value_that_takes_too_long_fails_its_row_alone(call: str, good: object) -> None:
    compiled = compile_expression(call.format(p=BACKTRACKING), SCHEMA)
    values, failures = evaluate(compiled, frame(["aaa", HOSTILE, None, "aaa"]))

    assert values.to_list() == [good, None, None, good]
    assert values.dtype == compiled.data_type
    [(row, error)] = failures
    assert row == 1
    assert isinstance(error, DataError)
    assert "takes too long for this value of 36 characters" in str(error)


def test_a_branch_that_is_not_taken_does_not_run_the_pattern() -> None:
    compiled = compile_expression(f"CASE WHEN length(s) < 10 THEN s RLIKE '{BACKTRACKING}' ELSE FALSE END", SCHEMA)
    values, failures = evaluate(compiled, frame(["aaa", HOSTILE]))
    assert (values.to_list(), failures) == ([True, False], [])


def test_signals_reach_a_process_within_a_pattern() -> None:
    """The call is made in another thread, as by the engine; without the bound it would run for hours."""
    code = f"""
        import signal, threading
        import polars as pl
        from headrace.flow.schema import Schema
        from headrace_columnar.expressions import compile_expression, evaluate
        compiled = compile_expression("s RLIKE '{BACKTRACKING}'", Schema({{"s": pl.String()}}))
        def work():
            while True:
                evaluate(compiled, pl.DataFrame({{"s": ["{HOSTILE}"] * 50}}))
        # Whoever starts the tests may have told their processes to ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Thread(target=work, daemon=True).start()
        print("running", flush=True)
        threading.Event().wait()
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"running\n"
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=120) != 0
    process.stdout.close()


@pytest.mark.parametrize("pattern", [r"(?=a)", r"(a)\1", "(", "x" * 1001, "(((a?){30}){30}){30}", r"\w{2000}"])
@pytest.mark.parametrize(
    "call",
    [
        "s RLIKE p", "s SIMILAR TO p", "regexp_extract(s, p)", "regexp_extract_all(s, p, 0)", "regexp_extract_all(s, p, g)",
        "regexp_replace(s, p, s)", "regexp_count(s, p)", "regexp_substr(s, p)", "regexp_instr(s, p)",
    ],
)  # fmt: skip
def test_a_column_gives_no_pattern_that_may_be_slow(call: str, pattern: str) -> None:
    if "SIMILAR" in call and pattern == r"(?=a)":
        pytest.skip("? repeats in SIMILAR TO, and (?= is wrong there in the same way as (")
    if "SIMILAR" in call and "\\" in pattern:
        pytest.skip("a backslash is an ordinary character in SIMILAR TO")
    compiled = compile_expression(call, SCHEMA)
    values, failures = evaluate(compiled, frame(["abc", "abc", None], ["b", pattern, pattern]))

    assert [row for row, _ in failures] == [1]
    assert "is not a pattern that a column may give" in str(failures[0][1])
    assert values[0] is not None
    assert values[1:].to_list() == [None, None]


PATTERNS = ["b", "", "(b)|(c)", r"\bé", "^a", "c$", "(?i)B", "[ab]+", "x*", r"(\d)(\d)?", "İ", "🙂"]
TEXTS = ["", "abc", "aé b", "éa é", "b\nc", "B12 3", "🙂b", "xxbxx", "İstanbul"]


@pytest.mark.parametrize(
    "call",
    [
        "s RLIKE {}", "regexp_extract(s, {})", "regexp_extract(s, {}, g)", "regexp_extract_all(s, {})",
        "regexp_extract_all(s, {}, g)",
        "regexp_replace(s, {}, '<$0|$1>')", "regexp_count(s, {})", "regexp_substr(s, {})", "regexp_instr(s, {})",
    ],
)  # fmt: skip
def test_a_pattern_from_a_column_gives_what_the_constant_gives(call: str) -> None:
    pairs = [(text, pattern) for text in TEXTS for pattern in PATTERNS]
    given = frame([text for text, _ in pairs], [pattern for _, pattern in pairs])
    values, failures = evaluate(compile_expression(call.format("p"), SCHEMA), given)
    assert failures == []
    for row, (_, pattern) in enumerate(pairs):
        one = compile_expression(call.format(f"'{pattern}'"), SCHEMA)
        assert evaluate(one, given[row : row + 1])[0].to_list() == values[row : row + 1].to_list(), pairs[row]


def test_a_group_that_took_no_part_is_null() -> None:
    values, _ = evaluate(compile_expression("regexp_extract_all(s, '(a)|b', 1)", SCHEMA), frame(["ab"]))
    assert values.to_list() == [["a", None]]


@pytest.mark.parametrize(
    "pattern",
    ["(?=a)((a{1000}){1000}){1000}", "(?=a)" + "x" * 10_001, r"(?=a)(?:foo){e<=1}", "(?=a)(?R)", r"(?=a)\m"],
)
def test_a_pattern_of_the_job_that_is_refused(pattern: str) -> None:
    with pytest.raises(ExpressionError):
        compile_expression(f"s RLIKE '{pattern}'", SCHEMA)


@pytest.mark.parametrize(
    ("pattern", "least"),
    [("abc", 3), ("a{7}", 7), ("(ab){5}", 10), ("(a{3}){4}", 12), (r"\p{Lu}{4}", 4), ("[]a]{5}", 5), ("[^]a]{5}x", 6),
     ("a{,5}", 5), (r"\{9}", 1), ("[{9}]", 1), ("a{2,9}", 9)],
)  # fmt: skip
def test_size(pattern: str, least: int) -> None:
    assert least <= regular_expressions.size(pattern) <= 3 * least + 4
