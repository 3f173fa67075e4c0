"""Dimension tables: every way of looking up against a plain loop, refreshes, and what is told of mistakes."""

from __future__ import annotations

import ipaddress
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import DataError, JobFailedError, OptionError, PlanError
from headrace.testing import MemorySink, MemorySource
from headrace_dimension.shared_table import SharedTable
from headrace_dimension.table import Table
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

PIPE = hr.stream("test", "lookup")


def stream(rows: list[dict[str, Any]], schema: dict[str, str]) -> hr.Stream:
    bodies = [json.dumps(row).encode() for row in rows]
    return PIPE.from_(MemorySource({"q0": bodies[::2], "q1": bodies[1::2]}), format="json", schema=schema)


def joined(left: hr.Stream, table: hr.Stream, on: Any, **options: Any) -> list[dict[str, Any]]:
    sink = MemorySink()
    left.lookup_join(table, on, **options).to(sink).run("light")
    return sink.rows


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


TEXTS = st.sampled_from([None, "", "a", "b", "ab", "ü", "x" * 40, "a\x00b"])
NUMBERS = st.one_of(st.none(), st.integers(-3, 3))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(TEXTS, NUMBERS, st.integers(0, 99)), max_size=25),
    st.lists(st.tuples(TEXTS, NUMBERS, st.integers(0, 99)), max_size=25),
    st.sampled_from(["inner", "left"]),
)
def test_equal_keys_against_a_loop(probes: list[Any], rows: list[Any], how: str) -> None:
    left = [{"t": t, "n": n, "id": i} for t, n, i in probes]
    right = [{"t": t, "m": n, "v": i} for t, n, i in rows]
    wanted = []
    for row in left:
        found = [
            each
            for each in right
            if None not in (row["t"], row["n"]) and (each["t"], each["m"]) == (row["t"], row["n"])
        ]
        wanted += [{**row, "v": each["v"]} for each in found]
        if not found and how == "left":
            wanted.append({**row, "v": None})
    found = joined(
        stream(left, {"t": "string", "n": "int64", "id": "int64"}),
        stream(right, {"t": "string", "m": "int16", "v": "int64"}),
        {"t": "t", "n": "m"},
        how=how,
    )
    assert texts(found) == texts(wanted)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(NUMBERS, max_size=20), st.lists(st.tuples(NUMBERS, NUMBERS), max_size=12))
def test_ranges_against_a_loop(probes: list[int | None], ranges: list[tuple[int | None, int | None]]) -> None:
    right = [{"low": low, "high": high, "v": place} for place, (low, high) in enumerate(ranges)]
    wanted = [
        {"n": value, **row}
        for value in probes
        for row, (low, high) in zip(right, ranges, strict=True)
        if value is not None and low is not None and high is not None and low <= value <= high
    ]
    found = joined(
        stream([{"n": value} for value in probes], {"n": "int64"}),
        stream(right, {"low": "int64", "high": "int64", "v": "int64"}),
        {"n": ("low", "high")},
        match="range",
    )
    assert texts(found) == texts(wanted)


NETWORKS = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32", "0.0.0.0/0", "2001:db8::/32", "2001:db8:1::/48"]
ADDRESSES = ["10.1.2.3", "10.1.2.4", "10.9.9.0", "192.168.0.1", "2001:db8::1", "2001:db8:1::5", "::1", "no", "", None]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from(NETWORKS), max_size=6))
def test_prefixes_against_a_loop(networks: list[str]) -> None:
    right = [{"network": network, "v": place} for place, network in enumerate(networks)]
    wanted = []
    for text in ADDRESSES:
        try:
            address = ipaddress.ip_address(text or "no")
        except ValueError:
            continue
        holding = [row for row in right if address in ipaddress.ip_network(str(row["network"]))]
        longest = max((ipaddress.ip_network(str(row["network"])).prefixlen for row in holding), default=None)
        for row in holding:
            if ipaddress.ip_network(str(row["network"])).prefixlen == longest:
                wanted.append({"ip": text, **row})
    found = joined(
        stream([{"ip": address} for address in ADDRESSES], {"ip": "string"}),
        stream(right, {"network": "string", "v": "int64"}),
        {"ip": "network"},
        match="prefix",
    )
    assert texts(found) == texts(wanted)


def test_rows_stay_in_order_and_are_numbered() -> None:
    table = stream([{"k": "a", "v": 1}, {"k": "a", "v": 2}, {"k": "b", "v": 3}], {"k": "string", "v": "int64"})
    left = PIPE.from_(
        MemorySource({"q": [json.dumps({"k": key}).encode() for key in "abca"]}), format="json", schema={"k": "string"}
    )
    assert joined(left, table, "k", how="left") == [
        {"k": "a", "v": 1}, {"k": "a", "v": 2}, {"k": "b", "v": 3}, {"k": "c", "v": None}, {"k": "a", "v": 1}, {"k": "a", "v": 2},
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["inner", "left"])
def test_columns_may_be_compared_with_each_others_namesakes(how: str) -> None:
    """The way back of a road: the columns of the stream are called as those of the table, the other way round."""
    schema = {"begin": "string", "end": "string"}
    roads = stream(
        [{"begin": "a", "end": "b", "km": 5}, {"begin": "b", "end": "c", "km": 7}], {**schema, "km": "int64"}
    )
    back = stream([{"begin": "b", "end": "a"}, {"begin": "c", "end": "b"}], schema)
    found = joined(back, roads, {"end": "begin", "begin": "end"}, how=how)
    assert texts(found) == texts([{"begin": "b", "end": "a", "km": 5}, {"begin": "c", "end": "b", "km": 7}])


def test_a_table_has_verbs_of_its_own_and_columns_of_equal_names_get_a_suffix() -> None:
    table = stream([{"k": "a", "v": 1}, {"k": "b", "v": 20}], {"k": "string", "v": "int64"}).where("v > 5")
    left = stream([{"k": "a", "v": 7}, {"k": "b", "v": 8}], {"k": "string", "v": "int64"})
    assert joined(left, table, "k") == [{"k": "b", "v": 8, "v_right": 20}]


@pytest.mark.parametrize("name", ["table", "memory", "where"])
def test_a_source_may_be_called_as_anything_of_the_table_is(name: str) -> None:
    source = MemorySource({"q": [json.dumps({"k": key}).encode() for key in "ab"]})
    table = PIPE.from_(source, format="json", schema={"k": "string"}, name=name).select("k", two="k || k")
    found = joined(stream([{"k": "a"}, {"k": "c"}], {"k": "string"}), table, "k", how="left")
    assert texts(found) == texts([{"k": "a", "two": "aa"}, {"k": "c", "two": None}])


def test_a_table_is_loaded_once_for_all_jobs_that_use_it() -> None:
    loads = []

    class Counted(MemorySource):
        def queues(self) -> Any:
            loads.append(1)
            return super().queues()

    table = PIPE.from_(Counted({"q": [b'{"k": "a", "v": 1}']}), format="json", schema={"k": "string", "v": "int64"})
    for _ in range(3):
        assert joined(stream([{"k": "a"}], {"k": "string"}), table, "k") == [{"k": "a", "v": 1}]
    assert len(loads) == 1


def table_of(state: Any) -> Table:
    """Return a table whose value for the key "a" is a state; raises a state that is an exception."""
    if isinstance(state, Exception):
        raise state
    return Table.of(pl.DataFrame({"k": ["a"], "v": [state]}), ("equal", ("k",)))


def value_in(table: Table) -> int:
    _, places = table.find(pl.DataFrame({"k": ["a"]}))
    return int(table.take(pl.Series(places))["v"][0])


def test_refreshing_swaps_the_table_and_keeps_the_old_one_when_it_fails() -> None:
    clock = ManualClock()
    states: list[Any] = [1, 2, OSError("away"), 4]
    shared = SharedTable("t", timedelta(minutes=1), clock)

    def load() -> Table:
        return table_of(states.pop(0))

    def value() -> int:
        table = shared.current(load)
        shared.wait()
        return value_in(table)

    assert value() == 1
    clock.advance(59)
    assert value() == 1
    clock.advance(1)
    assert value() == 1, "the lookup that finds it old is served by the one before"
    assert value() == 2
    clock.advance(60)
    value()
    assert value() == 2, "a failed refresh leaves the table"
    shared.reload(load)
    assert value() == 4


def test_the_first_lookup_after_a_quiet_time_waits_for_the_refresh() -> None:
    clock, loading, go_on = ManualClock(), threading.Event(), threading.Event()
    states: list[Any] = [1, 2, OSError("away"), 4]

    def load() -> Table:
        state = states.pop(0)
        if state == 2:
            loading.set()
            assert go_on.wait(60)
        return table_of(state)

    shared = SharedTable("t", timedelta(minutes=1), clock)

    def value() -> int:
        return value_in(shared.current(load))

    assert value() == 1
    clock.advance(120)
    with ThreadPoolExecutor(2) as lanes:
        one = lanes.submit(value)
        assert loading.wait(60)
        other = lanes.submit(value)
        go_on.set()
        assert [one.result(60), other.result(60)] == [2, 2], "every lane waits"
    clock.advance(3600)
    assert value() == 2, "a failed refresh leaves the table"
    clock.advance(3600)
    assert value() == 4


def test_a_lookup_that_waited_for_another_ones_refresh_loads_nothing() -> None:
    clock, states = ManualClock(), [1, 2, 3]
    shared = SharedTable("t", timedelta(minutes=1), clock)

    def load() -> Table:
        return table_of(states.pop(0))

    class Overtaken:
        """A lock that another lane gets first: it refreshes the table, after this one has found it old."""

        def __enter__(self) -> None:
            if len(states) == 2:
                shared.reload(load)

        def __exit__(self, *_: object) -> None:
            pass

    assert value_in(shared.current(load)) == 1
    clock.advance(120)
    shared._lock = Overtaken()  # type: ignore[assignment]
    shared.current(load)
    shared.wait()
    assert states == [3], "it is loaded at the beginning, and by the other lane"


def test_memory_stays_near_that_of_the_values() -> None:
    count = 100_000
    frame = pl.DataFrame(
        {
            "k": [f"user-{n:012d}" for n in range(count)],
            "a": [n % 7 for n in range(count)],
            "b": [f"group-{n % 50}" for n in range(count)],
            "c": [n % 1000 for n in range(count)],
        }
    )
    raw = 17 + 8 + 8 + 8
    table = Table.of(frame, ("equal", ("k",)))
    assert table.bytes() / count <= raw
    probes, places = table.find(frame.select("k").sample(1000, seed=1))
    assert len(probes) == 1000
    assert table.take(pl.Series(places)).schema == frame.drop("k").schema


@pytest.mark.parametrize(
    ("on", "options", "error", "message"),
    [
        ("nokey", {}, PlanError, "no column 'nokey'"),
        ({"who": "k"}, {}, PlanError, "unknown column 'who'"),
        ({"n": "k"}, {}, PlanError, "cannot be compared"),
        ("k", {"how": "outer"}, OptionError, "'inner' or 'left'"),
        ("k", {"match": "range"}, OptionError, "does not name the columns to compare"),
        ("k", {"refresh": "soon"}, OptionError, "is not a duration"),
    ],
)
def test_mistakes_are_told_when_the_job_is_built(on: Any, options: Any, error: Any, message: str) -> None:
    table = stream([{"k": "a", "v": 1}], {"k": "string", "v": "int64"})
    with pytest.raises(error, match=message):
        stream([{"k": "a", "n": 1}], {"k": "string", "n": "int64"}).lookup_join(table, on, **options)


@pytest.mark.parametrize(
    ("columns", "on", "options", "message"),
    [
        ({"low": "int64", "high": "int32"}, {"n": ("low", "high")}, {"match": "range"}, "both ends of a range must have the same type"),
        ({"low": "int64", "high": "string"}, {"n": ("low", "high")}, {"match": "range"}, "cannot be compared"),
        ({"network": "int64"}, {"n": "network"}, {"match": "prefix"}, "an address must be text"),
    ],
)  # fmt: skip
def test_types_that_a_table_cannot_be_looked_up_by_are_told_when_the_job_is_built(
    columns: Any, on: Any, options: Any, message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        stream([], {"n": "int64"}).lookup_join(stream([], columns), on, **options)


def test_a_bad_record_in_a_table_ends_the_job_and_is_named() -> None:
    table = PIPE.from_(MemorySource({"q": [b'{"k": "a"}', b"{"]}), format="json", schema={"k": "string"})
    with pytest.raises(JobFailedError, match="bad record at 'memory'") as raised:
        joined(stream([{"k": "a"}], {"k": "string"}), table, "k")
    assert isinstance(raised.value.__cause__, DataError)


@pytest.mark.spark
def test_on_spark(tmp_path: Path) -> None:
    (tmp_path / "table.ndjson").write_text('{"k": "a", "v": 1}\n{"k": "b", "v": 2}\n')
    (tmp_path / "rows.ndjson").write_text('{"k": "b"}\n{"k": "c"}\n')
    table = PIPE.from_file(str(tmp_path / "table.ndjson"), format="json", schema={"k": "string", "v": "int64"})
    left = PIPE.from_file(str(tmp_path / "rows.ndjson"), format="json", schema={"k": "string"})
    left.lookup_join(table, "k", how="left").to_file(tmp_path / "out", format="json").run("spark", show_progress=False)
    rows = [json.loads(line) for part in (tmp_path / "out").glob("*.json") for line in part.read_text().splitlines()]
    assert rows == [{"k": "b", "v": 2}, {"k": "c", "v": None}]


def test_the_example_of_the_page_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[3] / "docs" / "dimension-tables.md").read_text()
    names: dict[str, Any] = {}
    Path("users.csv").write_text("user,team,level\nann,red,1\nbob,blue,0\n")
    Path("networks.ndjson").write_text('{"network": "10.0.0.0/8", "site": "office"}\n')
    Path("logins").mkdir()
    login = {"user": "ann", "ip": "10.1.2.3", "ts": "2026-01-01T00:00:00Z"}
    Path("logins/a.ndjson").write_text(json.dumps(login) + "\n" + json.dumps({**login, "ip": "8.8.8.8"}) + "\n")
    exec(page.split("```python\n", 1)[1].split("```", 1)[0], names)
    assert dict(names["job"].run("light", show_progress=False).rows_written) == {"to_file": 1}
    (part,) = Path("out").glob("*.json")
    assert json.loads(part.read_text())["site"] == "office"
