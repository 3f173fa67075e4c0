"""CAST to TINYINT, SMALLINT, INT, BIGINT and FLOAT: the width of the type in schemas and results, and what does not fit."""

# ruff: noqa: S608  # texts are put together from constants; one case, one line

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError

LIMITS = {"TINYINT": 2**7, "SMALLINT": 2**15, "INT": 2**31, "BIGINT": 2**63}
KINDS = {"TINYINT": pl.Int8, "SMALLINT": pl.Int16, "INT": pl.Int32, "BIGINT": pl.Int64}


@pytest.fixture(autouse=True)
def place_of_dead_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def rows(text: str, **options: Any) -> list[tuple[Any, ...]]:
    return sorted(hr.sql(text).collect(**options).rows(), key=repr)


@pytest.mark.parametrize("word", KINDS)
def test_width_and_range_of_casts(word: str) -> None:
    limit = LIMITS[word]
    values = [limit - 1, limit, -limit, -limit - 1, 5]
    wider = [value for value in values if -(2**63) <= value < 2**63]
    hr.register("n", pl.DataFrame({"x": wider, "s": [str(value) for value in wider]}))
    hr.register("s", pl.DataFrame({"s": [str(value) for value in values]}))
    fitting = [value if -limit <= value < limit else None for value in wider]
    made = hr.sql(f"SELECT x, CAST(x AS {word}) AS c FROM n").collect()
    assert made.schema["c"] == KINDS[word]
    # Rows that do not fit are dead letters.
    assert made["c"].to_list() == [value for value in fitting if value is not None]
    tried = hr.sql(
        f"SELECT TRY_CAST(x AS {word}) AS a, TRY_CAST(CAST(x AS DECIMAL(20, 0)) AS {word}) AS b FROM n"
    ).collect()
    assert dict(tried.schema) == {"a": KINDS[word], "b": KINDS[word]}
    assert tried["a"].to_list() == tried["b"].to_list() == fitting
    of_text = hr.sql(f"SELECT TRY_CAST(s AS {word}) AS c FROM s").collect()
    assert of_text.schema["c"] == KINDS[word]
    assert of_text["c"].to_list() == [value if -limit <= value < limit else None for value in values]
    assert hr.sql(f"SELECT CAST(s AS {word}) AS c FROM s").collect()["c"].to_list() == [
        v for v in values if -limit <= v < limit
    ]


def test_texts_with_a_fraction_are_cut() -> None:
    texts = [" 13 ", "1.9", "-1.9", "+5.", ".5", "", ".", "1e3", "0x1", "1.2.3", "1.x"]
    hr.register("s", pl.DataFrame({"s": texts}))
    expected = [13, 1, -1, 5, 0, None, None, None, None, None, None]
    assert hr.sql("SELECT TRY_CAST(s AS INT) AS c FROM s").collect()["c"].to_list() == expected


def test_other_types_to_whole_numbers() -> None:
    frame = pl.DataFrame({"d": [3e9, -7.9, float("nan"), 7.9], "b": [True, False, None, True]})
    hr.register("f", frame)
    made = hr.sql(
        "SELECT TRY_CAST(d AS INT) AS d, TRY_CAST(d AS TINYINT) AS t, CAST(b AS SMALLINT) AS b FROM f"
    ).collect()
    assert dict(made.schema) == {"d": pl.Int32, "t": pl.Int8, "b": pl.Int16}
    assert made.rows() == [(None, None, 1), (-7, -7, 0), (None, None, None), (7, 7, 1)]


def test_float_is_32_bits_wide() -> None:
    made = hr.sql("SELECT CAST(0.1 AS FLOAT) AS f, CAST(0.1 AS DOUBLE) AS d, CAST('0.1' AS FLOAT) AS s").collect()
    assert dict(made.schema) == {"f": pl.Float32, "d": pl.Float64, "s": pl.Float32}


def test_in_expressions_of_the_dsl_int_is_64_bits_and_int32_is_32() -> None:
    hr.register("n", pl.DataFrame({"x": [3_000_000_000, 5]}))
    made = hr.table("n").select(
        a="CAST(x AS INT)", b="TRY_CAST(x AS INT32)", c="TRY_CAST(x AS FLOAT32)", d="TRY_CAST(x AS int16)"
    )
    assert dict(made.schema or {}) == {"a": pl.Int64, "b": pl.Int32, "c": pl.Float32, "d": pl.Int16}


def test_a_constant_text_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ExpressionError, match="'3000000000' cannot be read as int32"):
        hr.sql("SELECT CAST('3000000000' AS INT)")


@pytest.fixture
def mixed() -> None:
    """Frames ``a`` (32 bits) and ``b`` (64 bits) with some equal keys."""
    hr.register(
        "a", pl.DataFrame({"k": [-5, 0, 1, 2, 3, None], "v": [1, 2, 3, 4, 5, 6]}, schema={"k": pl.Int32, "v": pl.Int32})
    )
    hr.register("b", pl.DataFrame({"k": [-5, 1, 3, 3_000_000_000, None], "w": [10, 20, 30, 40, 50]}))


@pytest.mark.usefixtures("mixed")
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT v, w FROM a JOIN b ON a.k = b.k", [(1, 10), (3, 20), (5, 30)]),
        ("SELECT v, w FROM a JOIN b ON a.k = CAST(b.k AS DECIMAL(20, 0))", [(1, 10), (3, 20), (5, 30)]),
        ("SELECT v, w FROM a JOIN b ON CAST(a.k AS SMALLINT) = b.k WHERE w > 10", [(3, 20), (5, 30)]),
        ("SELECT v FROM a WHERE k IN (SELECT k FROM b)", [(1,), (3,), (5,)]),
        ("SELECT k FROM a INTERSECT SELECT k FROM b", [(-5,), (1,), (3,), (None,)]),
        ("SELECT k, COUNT(*) FROM (SELECT k FROM a UNION ALL SELECT k FROM b) GROUP BY k",
         [(-5, 2), (0, 1), (1, 2), (2, 1), (3, 2), (3_000_000_000, 1), (None, 2)]),
        ("SELECT CAST(w AS INT) AS k, COUNT(*) FROM b GROUP BY CAST(w AS INT)", [(10, 1), (20, 1), (30, 1), (40, 1), (50, 1)]),
        ("SELECT v FROM a WHERE k = CAST(3 AS TINYINT) OR k BETWEEN CAST(-9 AS SMALLINT) AND 0", [(1,), (2,), (5,)]),
    ],
)  # fmt: skip
def test_keys_of_other_widths_are_equal(text: str, expected: list[Any], shards: int) -> None:
    assert rows(text, shards=shards) == expected


@pytest.mark.usefixtures("mixed")
def test_results_of_aggregates_and_arithmetic_have_64_bits() -> None:
    hr.register("big", pl.DataFrame({"x": [2**31 - 1, 2**31 - 1, 3]}, schema={"x": pl.Int32}))
    made = hr.sql("SELECT SUM(x) AS s, AVG(x) AS a, MAX(x) AS m, SUM(x + x) AS d FROM big").collect()
    assert made.rows() == [(2**32 + 1, (2**32 + 1) // 3, 2**31 - 1, 2**33 + 2)]
    assert made.schema["m"] == pl.Int32
    assert rows("SELECT CAST(x AS INT) * 2 FROM big WHERE x > 5") == [(2**32 - 2,), (2**32 - 2,)]


def test_declared_widths_of_tables(tmp_path: Path) -> None:
    lines = [{"x": 1}, {"x": 3_000_000_000}, {"x": -5}, {"x": None}]
    (tmp_path / "t.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "t.csv").write_text("1\n3000000000\n-5\n")
    for form in ("json", "csv"):
        path = tmp_path / ("t.ndjson" if form == "json" else "t.csv")
        hr.sql(f"CREATE TABLE t (x INT) WITH ('connector' = 'file', 'path' = '{path}', 'format' = '{form}')")
        made = hr.sql("SELECT x FROM t WHERE x IS NOT NULL").collect()
        assert made.schema["x"] == pl.Int32
        assert made["x"].to_list() == [1, -5]  # the other is a dead letter


def test_what_does_not_fit_a_column_of_a_sink_is_a_dead_letter(tmp_path: Path) -> None:
    hr.register("n", pl.DataFrame({"x": [1, 3_000_000_000, -5]}))
    hr.sql(
        f"CREATE TABLE s (x INT, f FLOAT) WITH ('connector' = 'file', 'path' = '{tmp_path / 'out'}', 'format' = 'json')"
    )
    report = hr.sql("INSERT INTO s SELECT x, 0.5 FROM n").run("light")
    found = [line for path in (tmp_path / "out").glob("part-*") for line in path.read_text().splitlines()]
    assert sorted(found) == ['{"x":-5,"f":0.5}', '{"x":1,"f":0.5}']
    assert report.dead_letters == 1
