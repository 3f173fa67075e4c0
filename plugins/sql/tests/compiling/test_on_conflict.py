"""INSERT into tables with a primary key: which row of several counts."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError

VOTES = pl.DataFrame({"person": ["Ada", "Bo", "Ada", "Cy"], "team": ["x", "y", "x", "y"], "n": [1, 5, 2, 4]})
OF_CHANGES = pl.DataFrame({
    "op": ["INSERT", "INSERT", "DELETE", "INSERT", "DELETE"], "person": ["Ada", "Bo", "Bo", "Cy", "Cy"],
    "team": ["x", "x", "x", "y", "y"],
})  # fmt: skip
TEAMS = "CREATE TABLE teams (team STRING PRIMARY KEY NOT ENFORCED, best STRING) WITH ({options});"
MYSQL = "'connector' = 'jdbc', 'url' = 'jdbc:mysql://h/d', 'table-name' = 't', 'username' = 'u', 'password' = 'p'"
BLACKHOLE = "'connector' = 'blackhole'"
CHANGING = "CREATE VIEW totals AS SELECT person, MAX(team) AS team, SUM(n) AS n FROM votes GROUP BY person;"


def inserting(options: str, query: str, before: str = "") -> str:
    """Return a text that writes a query to ``teams``."""
    return "\n".join([TEAMS.format(options=options), before, "INSERT INTO teams", query])


@pytest.fixture(autouse=True)
def known() -> None:
    hr.register("votes", VOTES)
    hr.register("told", OF_CHANGES)


def test_rows_that_another_row_of_the_result_would_overwrite_are_refused() -> None:
    text = inserting(MYSQL, "SELECT team, person FROM totals", CHANGING)
    with pytest.raises(ExpressionError, match="known by best, not by the primary key of 'teams', team") as caught:
        hr.sql(text)
    assert "ON CONFLICT DO DEDUPLICATE" in str(caught.value.hint)
    assert hr.sql(text + " ON CONFLICT DO DEDUPLICATE").plan()
    assert hr.sql("SET 'table.exec.sink.require-on-conflict' = 'false';" + text).plan()


def test_the_option_asks_for_what_flink_refuses() -> None:
    strict = "SET 'table.exec.sink.require-on-conflict' = 'true';"
    text = strict + inserting(MYSQL, "SELECT team, person FROM votes")
    with pytest.raises(ExpressionError, match="rows that are only added have no key"):
        hr.sql(text).plan()
    assert hr.sql(text + " ON CONFLICT DO DEDUPLICATE").plan()
    for action in ("NOTHING", "ERROR"):
        with pytest.raises(ExpressionError, match="requires all source tables to define watermarks"):
            hr.sql(text + f" ON CONFLICT DO {action}").plan()
        timed = "CREATE TABLE v (team STRING, person STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');"
        assert hr.sql(timed + text.replace("votes", "v") + f" ON CONFLICT DO {action}").plan()
        query = "SELECT v.team, v.person FROM v JOIN votes ON v.team = votes.team ON CONFLICT DO"
        joined = inserting(MYSQL, " ".join([query, action]))
        with pytest.raises(ExpressionError, match="requires all source tables to define watermarks"):
            hr.sql(strict + timed + joined).plan()
    assert hr.sql(strict + inserting(BLACKHOLE, "SELECT team, person FROM votes")).plan()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT team, MAX(person) FROM votes GROUP BY team",
        "SELECT team AS t, MAX(person) AS p FROM votes GROUP BY team HAVING COUNT(*) > 1",
        "SELECT team, person FROM votes",
    ],
)
def test_rows_known_by_the_key_and_rows_that_are_only_added_need_no_clause(query: str) -> None:
    assert hr.sql(inserting(MYSQL, query)).plan()


def test_a_key_of_another_width_is_the_same_key() -> None:
    hr.register("small", pl.DataFrame({"id": [1, 2], "v": [1, 2]}, schema={"id": pl.Int32, "v": pl.Int32}))
    table = f"CREATE TABLE o (id {{kind}} PRIMARY KEY NOT ENFORCED, n BIGINT) WITH ({MYSQL});"
    insert = "INSERT INTO o SELECT id, COUNT(*) FROM small GROUP BY id"
    assert hr.sql(table.format(kind="BIGINT") + insert).plan()
    with pytest.raises(ExpressionError, match="known by id, not by"):
        hr.sql(table.format(kind="FLOAT") + insert)


def test_sinks_that_take_changes_as_they_are_need_no_key() -> None:
    assert hr.sql(inserting(BLACKHOLE, "SELECT team, person FROM totals", CHANGING)).plan()


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        ("DEDUPLICATE", [("x", "Ada"), ("y", "Cy")]),
        ("NOTHING", [("x", "Ada"), ("y", "Bo")]),
        ("ERROR", [("x", "Ada"), ("y", "Bo")]),
    ],
)
def test_which_row_counts(action: str, wanted: list[tuple[str, str]]) -> None:
    text = inserting(MYSQL, " ".join(["SELECT team, person FROM totals ON CONFLICT DO", action]), CHANGING)
    assert sorted(hr.sql(text).collect().rows()) == wanted


@pytest.mark.parametrize(("action", "wanted"), [("DEDUPLICATE", ["Ada"]), ("NOTHING", ["Ada"]), ("ERROR", ["Ada"])])
def test_what_is_taken_back_gives_way_to_the_row_before_it(action: str, wanted: list[str]) -> None:
    view = "CREATE VIEW c AS SELECT * FROM FROM_CHANGELOG(TABLE told);"
    text = inserting(MYSQL, " ".join(["SELECT team, person FROM c ON CONFLICT DO", action]), view)
    for size in (1, 100):
        assert hr.sql(text).collect(max_batch_records=size)["best"].to_list() == wanted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (BLACKHOLE, "takes all changes as they are"),
        ("'connector' = 'filesystem', 'path' = 'x', 'format' = 'json'", "needs rows that are only added"),
    ],
)
def test_the_clause_is_for_sinks_that_write_by_key(options: str, message: str) -> None:
    text = inserting(options, "SELECT team, person FROM votes ON CONFLICT DO NOTHING")
    with pytest.raises(ExpressionError, match=message) as caught:
        hr.sql(text)
    position = caught.value.position
    assert position is not None
    assert str(caught.value.text)[position:].startswith("ON CONFLICT DO NOTHING")


def test_a_table_without_a_key_has_no_conflicts() -> None:
    with pytest.raises(ExpressionError, match="has none"):
        hr.sql(
            inserting(BLACKHOLE, "SELECT team, person FROM votes ON CONFLICT DO ERROR").replace(
                " PRIMARY KEY NOT ENFORCED", ""
            )
        )
    with pytest.raises(ExpressionError, match="NOTHING, ERROR or DEDUPLICATE"):
        hr.sql(inserting(MYSQL, "SELECT team, person FROM votes ON CONFLICT DO UPDATE"))


_EVENTS = (
    """SET 'table.exec.sink.require-on-conflict' = 'true';
CREATE TABLE e (k STRING, x BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
CREATE TABLE o ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ("""
    + MYSQL
    + """);
INSERT INTO o {query}"""
)
_WINDOWED = (
    "SELECT window_start, window_end, k, COUNT(*) FROM TABLE({}(TABLE e, DESCRIPTOR(ts), INTERVAL '5' SECOND{})) {}"
)
_BY_WINDOW = "GROUP BY window_start, window_end, k"
_TUMBLED = "TABLE(TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '5' SECOND))"
_NUMBERED = "ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY x) AS rn"
_FIRST = f"SELECT k, x, ws, we FROM (SELECT k, x, window_start AS ws, window_end AS we, {_NUMBERED} FROM {_TUMBLED}) WHERE rn <= {{}}"
_ONCE = "SELECT k, x FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS rn FROM e) WHERE rn = 1"
_AS_TEXT = f"SELECT CAST(window_end AS STRING), COUNT(*) FROM {_TUMBLED} GROUP BY window_start, window_end"
_OLD = "SELECT {0}_START(ts, {1}), {0}_END(ts, {1}), k, COUNT(*) FROM e GROUP BY k, {0}(ts, {1})"
_OF_FIRST = "k STRING, x BIGINT, ws TIMESTAMP(3), we TIMESTAMP(3)"
_OF_WINDOWS = "ws TIMESTAMP(3), we TIMESTAMP(3), k STRING, n BIGINT"


@pytest.mark.parametrize(
    ("columns", "key", "query", "passes"),
    [
        # As in Flink 2.3.
        (_OF_WINDOWS, "ws, k", _OLD.format("TUMBLE", "INTERVAL '5' SECOND"), True),
        (_OF_WINDOWS, "we, k", _OLD.format("HOP", "INTERVAL '5' SECOND, INTERVAL '10' SECOND"), True),
        (_OF_WINDOWS, "ws, we, k", _OLD.format("SESSION", "INTERVAL '5' SECOND"), True),
        (_OF_WINDOWS, "k", _OLD.format("TUMBLE", "INTERVAL '5' SECOND"), False),
        ("k STRING", "k", "SELECT DISTINCT k FROM e", True),
        ("k STRING, x BIGINT", "k", _ONCE, True),
        (_OF_FIRST, "ws, we, k", _FIRST.format(1), True),
        (_OF_FIRST, "ws, we, k", _FIRST.format(2), False),
        ("k STRING, x BIGINT", "k", "SELECT k, x FROM e", False),
        ("k STRING, x BIGINT", "k", "SELECT k, SUM(x) OVER (PARTITION BY k ORDER BY ts) FROM e", False),
        # Flink knows no keys of these: it asks for a clause, though no two rows have one key.
        (_OF_WINDOWS, "ws, we, k", _WINDOWED.format("TUMBLE", "", _BY_WINDOW), True),
        (_OF_WINDOWS, "we, k", _WINDOWED.format("CUMULATE", ", INTERVAL '10' SECOND", _BY_WINDOW + " HAVING COUNT(*) > 1"), True),
        (_OF_WINDOWS, "ws, k", _WINDOWED.format("CUMULATE", ", INTERVAL '10' SECOND", _BY_WINDOW), False),
        (_OF_WINDOWS, "ws, we", _WINDOWED.format("TUMBLE", "", _BY_WINDOW), False),
        ("we STRING, n BIGINT", "we", _AS_TEXT, False),
    ],
)  # fmt: skip
def test_with_the_option_rows_of_which_one_has_a_key_need_no_clause(
    columns: str, key: str, query: str, passes: bool
) -> None:
    text = _EVENTS.format(columns=columns, key=key, query=query)
    if passes:
        assert hr.sql(text).plan()
        return
    with pytest.raises(ExpressionError, match="rows that are only added have no key"):
        hr.sql(text).plan()
