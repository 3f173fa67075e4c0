"""MAP, ROW and ARRAY: read from JSON, taken apart, made, and written again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import ExpressionError

ROWS = [
    {"id": 1, "m": {"a": 1, "b": 2}, "r": {"x": 1, "y": {"z": "q"}}, "arr": [{"x": 5}, {"x": 6}], "nn": [[1, 2], [3]]},
    {"id": 2, "m": None, "r": None, "arr": [], "nn": None},
    {"id": 3, "m": [1]},
    {"id": 4, "m": {"a": "no number"}},
    {"id": 5, "m": {"a": "7"}},
]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rows.ndjson"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    hr.sql(
        "CREATE TABLE t (id INT, m MAP<STRING, INT>, r ROW<x INT, y ROW<z STRING>>, arr ARRAY<ROW<x INT>>, nn ARRAY<ARRAY<INT>>) "
        f"WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json')"
    )
    return tmp_path


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT id, m['a'], m['c'] FROM t", [(1, 1, None), (2, None, None), (5, 7, None)]),
        ("SELECT id FROM t WHERE m['b'] > 1", [(1,)]),
        ("SELECT id, CARDINALITY(m), MAP_KEYS(m) FROM t WHERE id = 1", [(1, 2, ["a", "b"])]),
        ("SELECT id, k, v FROM t CROSS JOIN UNNEST(m) AS x(k, v)", [(1, "a", 1), (1, "b", 2), (5, "a", 7)]),
        ("SELECT r.x, r.y.z, t.r.y.z, r['x'] FROM t WHERE id < 3", [(1, "q", "q", 1), (None,) * 4]),
        ("SELECT arr[1].x, nn[1][2], nn[9] FROM t WHERE id < 3", [(5, 2, None), (None,) * 3]),
        ("SELECT x FROM t CROSS JOIN UNNEST(arr) AS q(x)", [(5,), (6,)]),
        ("SELECT MAP['a', 1, 'b', id]['b'], MAP[1, 'x'][id], ARRAY[id, 2][1] FROM t WHERE id = 1", [(1, "x", 1)]),
        (
            "SELECT STR_TO_MAP('a=1,b=2')['b'], MAP_VALUES(STR_TO_MAP('a:1', ',', ':')) FROM t WHERE id = 1",
            [("2", ["1"])],
        ),
        ("SELECT MAX(m['a']), SUM(r.x) FROM t", [(7, 1)]),
        ("SELECT CAST(r AS ROW<x SMALLINT, y ROW<z STRING>>) FROM t WHERE id = 1", [({"x": 1, "y": {"z": "q"}},)]),
        (
            "SELECT CAST(ROW(1, 2) AS ROW<a INT, b FLOAT>), CAST(NULL AS ROW<x INT>) FROM t WHERE id = 1",
            [({"a": 1, "b": 2.0}, None)],
        ),
        ("SELECT CAST(arr AS ARRAY<ROW<x INT>>) FROM t WHERE id = 1", [([{"x": 5}, {"x": 6}],)]),
        ("SELECT CAST(m AS MAP<STRING, BIGINT>)['b'], CAST(NULL AS MAP<STRING, INT>) FROM t WHERE id = 1", [(2, None)]),
    ],
)
def test_parts_of_a_value(text: str, expected: list[tuple[Any, ...]]) -> None:
    assert hr.sql(text).collect().rows() == expected


def test_a_map_is_an_object_in_json(table: Path) -> None:
    hr.sql(
        "CREATE TABLE o (id INT, m MAP<STRING, INT>) WITH ('connector' = 'filesystem', 'path' = '${OUT}', "
        "'format' = 'json'); INSERT INTO o SELECT id, m FROM t",
        variables={"OUT": str(table / "out")},
    ).run("light", show_progress=False)
    lines = [line for part in (table / "out").glob("*.json") for line in part.read_text().splitlines()]
    # The other two are no maps of whole numbers: they are in the dead letters.
    assert sorted(lines) == ['{"id":1,"m":{"a":1,"b":2}}', '{"id":2,"m":null}', '{"id":5,"m":{"a":7}}']


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT id['a'] FROM t", "int32 has no elements"),
        ("SELECT m[1] FROM t WHERE m[1] = 'x'", "cannot compare"),
        ("SELECT r.nope FROM t", "unknown field 'nope'"),
        ("SELECT MAP['a', 1, 'b', 'x'] FROM t", "cannot be combined"),
    ],
)
def test_what_is_no_part_is_refused(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        hr.sql(text)


@pytest.mark.usefixtures("table")
def test_a_map_is_printed_as_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    hr.sql(
        "CREATE TABLE shown (id INT, m MAP<STRING, INT>) WITH ('connector' = 'print'); INSERT INTO shown SELECT id, m FROM t"
    ).run("light")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"id": 1, "m": {"a": 1, "b": 2}}, {"id": 2, "m": None}, {"id": 5, "m": {"a": 7}},
    ]  # fmt: skip
