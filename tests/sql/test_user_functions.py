"""Functions as Blink and PyFlink users write them, in SQL texts, on both backends."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError

BACKENDS = ["light", pytest.param("spark", marks=pytest.mark.spark)]
#: In every run Spark has scalar functions, aggregates with an object as state, and those of PyFlink.
RARELY_ON_SPARK = ["light", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])]
MODULE = "tests.sql.functions_of_users"
START = datetime.datetime(2026, 1, 1)
ROWS = pl.DataFrame(
    {
        "k": ["a", "b", "a", None, "b", "a"],
        "s": ["one two", "three", None, "four", "five six", ""],
        "v": [1, 5, 3, 2, 9, 4],
        "amount": pl.Series(["1.50", "2.25", None, "4.00", "0.25", "3.00"]).cast(pl.Decimal(10, 2)),
        "ts": [START + datetime.timedelta(seconds=second) for second in (0, 1, 61, 62, 63, 64)],
    }
)


def rows(backend: str, functions: dict[str, str], query: str, **options: Any) -> list[tuple[Any, ...]]:
    hr.register("t", ROWS)
    created = "".join(
        f"CREATE FUNCTION {name} AS '{MODULE}:{path}' LANGUAGE PYTHON;" for name, path in functions.items()
    )
    return sorted(hr.sql(created + query).collect(backend=backend, **options).rows(), key=repr)


@pytest.mark.parametrize("backend", BACKENDS)
def test_scalar_functions(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENED_OF_TESTS", str(tmp_path))
    found = rows(
        backend,
        {"shout": "Texts", "again": "Texts.shout", "prefixed": "Prefix"},
        "SELECT shout(s), shout(s, times => 2), again(mark => '?', text => s), prefixed(k) FROM t WHERE v < 6 AND k IS NOT NULL",
    )
    assert found == sorted(
        [
            ("ONE TWO!", "ONE TWO!!", "ONE TWO?", "p-a"),
            ("THREE!", "THREE!!", "THREE?", "p-b"),
            (None, None, None, "p-a"),
            ("!", "!!", "?", "p-a"),
        ],
        key=repr,
    )
    # That prefixes are there shows that each process has opened the function. Spark's processes have the environment of when the
    # session began, so only light is told where to write down how often.
    opened = [each.read_text() for each in tmp_path.iterdir()]
    if backend == "light":
        assert opened == ["open\n"]


@pytest.mark.parametrize("backend", RARELY_ON_SPARK)
def test_table_functions(backend: str) -> None:
    found = rows(
        backend, {"words": "Words"}, "SELECT v, word, size FROM t, LATERAL TABLE(words(s, least => 4)) WHERE v <> 2"
    )
    assert found == [(5, "three", 5), (9, "five", 4)]
    outer = rows(
        backend,
        {"words": "Words"},
        "SELECT v, x.w FROM t LEFT JOIN LATERAL TABLE(words(s)) AS x(w, n) ON TRUE WHERE v > 2",
    )
    assert outer == [(3, None), (4, None), (5, "three"), (9, "five"), (9, "six")]


@pytest.mark.parametrize("backend", BACKENDS)
def test_aggregates_keep_what_is_no_plain_value(backend: str, tmp_path: Path) -> None:
    query = "SELECT k, total(amount, s) AS x FROM t GROUP BY k"
    wanted = [("a", "4.50 of 2"), ("b", "2.50 of 2"), (None, "4.00 of 1")]
    assert rows(backend, {"total": "Total"}, query, shards=2, max_batch_records=2) == wanted
    windows = (
        "SELECT window_start, total(amount, s) FROM TABLE(TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
        "GROUP BY window_start, window_end"
    )
    source = tmp_path / "e.ndjson"
    ROWS.select("s", "amount", "ts").write_ndjson(source)
    table = (
        "CREATE TABLE e (s STRING, amount DECIMAL(10, 2), ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) "
        f"WITH ('connector' = 'filesystem', 'path' = '{source}', 'format' = 'json');"
    )
    found = rows(backend, {"total": "Total"}, table + windows, max_batch_records=2)
    assert found == [(START, "3.75 of 2"), (START + datetime.timedelta(minutes=1), "7.25 of 3")]


@pytest.mark.parametrize("backend", RARELY_ON_SPARK)
def test_an_aggregate_over_rows_that_change(backend: str) -> None:
    query = "SELECT total(m, CAST(n AS STRING)) FROM (SELECT MAX(amount) AS m, COUNT(*) AS n FROM t GROUP BY k)"
    assert rows(backend, {"total": "Total"}, query, max_batch_records=1) == [("9.25 of 3",)]


@pytest.mark.parametrize("backend", RARELY_ON_SPARK)
def test_table_aggregates_give_an_array_of_rows(backend: str) -> None:
    query = "SELECT q.k, x.v, x.r FROM (SELECT k, best(v) AS l FROM t GROUP BY k) AS q, UNNEST(q.l) AS x(v, r)"
    assert rows(backend, {"best": "Best"}, query, max_batch_records=2) == [
        ("a", 3, 2), ("a", 4, 1), ("b", 5, 2), ("b", 9, 1), (None, 2, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
def test_objects_of_pyflink_are_taken_as_they_are(backend: str) -> None:
    pytest.importorskip("pandas")
    functions = {"described": "described", "half": "half", "spread": "spread"}
    query = (
        "SELECT described(CAST(ROW(k, v) AS ROW<name STRING, n INT>), MAP['x', v, 'y', 1]), half(v) FROM t WHERE v > 4"
    )
    assert rows(backend, functions, query) == [('["b", 5, {"x": 5, "y": 1}]', 2.5), ('["b", 9, {"x": 9, "y": 1}]', 4.5)]
    assert rows(backend, functions, "SELECT k, spread(v) FROM t GROUP BY k", max_batch_records=2) == [
        ("a", 3),
        ("b", 4),
        (None, 0),
    ]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT shout(v) FROM t", "expects str | None here, but the argument is int64"),
        ("SELECT shout(s, 1) FROM t", "expects str here"),
        ("SELECT shout(s, '!', 1, 2) FROM t", "cannot be called so"),
        ("SELECT shout(s, loud => 1) FROM t", "no argument 'loud'"),
        ("SELECT shout(text => s, '!') FROM t", "stand behind the others"),
        ("SELECT total(v, s) + 1 FROM t", "|".join(["cannot", "numbers", "string"])),
        ("SELECT total(s, s) FROM t", "expects decimal.Decimal | None here, but the argument is string"),
        ("SELECT w FROM t, LATERAL TABLE(words(v)) AS x(w, n)", "expects str | None here"),
        ("SELECT w FROM t, LATERAL TABLE(words()) AS x(w, n)", "cannot be called so"),
    ],
)
def test_calls_are_checked_when_the_job_is_built(query: str, message: str) -> None:
    functions = {"shout": "Texts", "total": "Total", "words": "Words"}
    with pytest.raises(ExpressionError) as caught:
        rows("light", functions, query)
    assert any(each in str(caught.value) for each in (message, *message.split("|")))


def test_a_function_that_says_no_type_is_refused_where_it_is_created() -> None:
    with pytest.raises(
        ExpressionError, match=r"(?s)does not declare the type that it returns.*CREATE FUNCTION.*annotate it"
    ):
        hr.sql("CREATE FUNCTION f AS 'json:dumps'")
    with pytest.raises(ExpressionError, match=r"(?s)'Words'? is neither|no 'nothing'|cannot import|has no"):
        hr.sql(f"CREATE FUNCTION f AS '{MODULE}:nothing'")
