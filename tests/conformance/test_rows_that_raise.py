"""A row that makes an expression or a user function raise in the middle of a batch: as if the row had not been there, and it is told.

The other rows of its batch were partly taken in when it raised. None of them may be missing from a verb's state, or be in it twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import DataError, JobFailedError

from tests.conformance.case import differences, outputs
from tests.conformance.stateful_inputs import ORDERS, SCHEMA, clicks, orders
from tests.formats.jobs import JOINED, KEYED, LATE, WINDOWED
from tests.formats.keep import within

#: The number of the record that raises: neither at an end of a batch of 50 nor the first or the last of its key.
BAD = 137
_BATCH = 50
_OPTIONS: Mapping[str, Any] = {"checkpoint": "state", "shards": 2, "max_batch_records": _BATCH, "show_progress": False}
Feed = Callable[[hr.Stream], hr.Stream]
Verb = Callable[[hr.Stream, hr.Stream], hr.Stream]


@hr.udf(name="raises_at_bad")
def raises_at_bad(number: int | None) -> int | None:
    if number == BAD:
        raise DataError(f"{number} is not wanted")
    return number


@hr.udf(name="breaks_at_bad")
def breaks_at_bad(number: int | None) -> int | None:
    return None if number is None else number + 0 // (number - BAD)


@hr.udaf(returns="int64", name="sum_but_bad")
class SumButBad:
    """A sum that cannot take one number."""

    def create(self) -> int:
        return 0

    def add(self, state: int, value: int | None) -> int:
        return state + (raises_at_bad_now(value) or 0)

    def merge(self, state: int, other: int) -> int:
        return state + other

    def result(self, state: int) -> int:
        return state


def raises_at_bad_now(number: int | None) -> int | None:
    if number == BAD:
        raise ValueError(f"{number} is not wanted")
    return number


def _same(row: dict[str, Any]) -> dict[str, Any]:
    raises_at_bad_now(row["id"])
    return row


def _several(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield row
    raises_at_bad_now(row["id"])  # behind a row that was given already


def _reduced(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    raises_at_bad_now(other["id"])
    return {**other, "v": one["v"] + other["v"], "n": one["n"] + 1}


class Counted:
    """Counts rows per key; raises when its state and its timers are changed, and a row is given."""

    def process(self, row: dict[str, Any], state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
        state["n"] = state.get("n", 0) + 1
        state.setdefault("ids", []).append(row["id"])
        yield {"key": row["key"], "n": state["n"], "id": row["id"]}
        raises_at_bad_now(row["id"])


FEEDS: Mapping[str, Feed] = {
    "where": lambda e: e.where(f"1 / (id - {BAD}) < 5"),
    "with-columns": lambda e: e.with_columns(key=f"CASE WHEN 1 / (id - {BAD}) > 5 THEN 'never' ELSE key END").where(
        "key IS NULL OR key <> 'never'"
    ),
    "function": lambda e: e.where("raises_at_bad(id) >= 0"),
    "function-that-breaks": lambda e: e.where("breaks_at_bad(id) >= 0"),
    "map": lambda e: e.map(_same, schema=SCHEMA),
    "flat-map": lambda e: e.flat_map(_several, schema=SCHEMA),
}


def _looked_up(events: hr.Stream, others: hr.Stream) -> hr.Stream:
    table = hr.stream("raise", "table").from_file("in/orders.ndjson", format="json", schema=ORDERS, name="table")
    places = table.where("order < 13").select("order", place="key")
    joined: hr.Stream = events.lookup_join(places, on={"key": "place"}, how="left")
    return joined


def _one(build: Callable[[hr.Stream], hr.Stream]) -> Verb:
    return lambda events, others: build(events)


#: Verbs behind what raises.
BEHIND: Mapping[str, Verb] = {
    **{name: _one(build) for name, build in {**KEYED, **WINDOWED}.items()},
    **JOINED,
    "join-right": lambda events, others: others.join(events, on="key", how="full"),
    "lookup-join": _looked_up,
}
#: Verbs whose own expressions and functions raise.
INSIDE: Mapping[str, Verb] = {
    "aggregate": _one(lambda e: e.key_by("key").agg(n="count(*)", s="sum(raises_at_bad(id))", a="avg(v)")),
    "aggregate-division": _one(lambda e: e.key_by("key").agg(n="count(*)", s=f"sum(id + 1 / (id - {BAD}))")),
    "key": _one(lambda e: e.key_by(k="raises_at_bad(id) % 5").agg(n="count(*)", s="sum(id)")),
    "tumbling": _one(
        lambda e: e.key_by("key").window(hr.tumbling("10 s", on="ts")).agg(n="count(*)", s="sum(raises_at_bad(id))")
    ),
    "sliding": _one(
        lambda e: e.key_by("key").window(hr.sliding("30 s", "10 s", on="ts")).agg(l="last(raises_at_bad(id))", n="count(*)")
    ),
    "session": _one(
        lambda e: e.key_by("key").window(hr.session("8 s", on="ts")).agg(n="count(*)", s=f"sum(1 / (id - {BAD}))")
    ),
    "window-reduce": _one(
        lambda e: (
            e.select("key", "ts", "id", v="coalesce(v, 0.0)", n="1")
            .key_by()
            .window(hr.tumbling("1 h", on="ts"))
            .reduce(_reduced)
        )
    ),
    "reduce": _one(lambda e: e.select("key", "id", v="coalesce(v, 0.0)", n="1").key_by("key").reduce(_reduced)),
    "process": _one(
        lambda e: e.key_by("key").process(Counted(), schema={"key": "string", "n": "int64", "id": "int64"}, on="ts")
    ),
}  # fmt: skip
#: Verbs with a user aggregate that raises, which stops the job (docs/windows.md).
AGGREGATED: Mapping[str, Verb] = {
    "aggregate": _one(lambda e: e.key_by("key").agg(n="count(*)", s="sum_but_bad(id)")),
    "tumbling": _one(
        lambda e: e.key_by("key").window(hr.tumbling("10 s", on="ts")).agg(n="count(*)", s="sum_but_bad(id)")
    ),
    "session": _one(
        lambda e: e.key_by("key").window(hr.session("8 s", on="ts")).agg(n="count(*)", s="sum_but_bad(id)")
    ),
}


#: Each verb behind an expression or a function, in turn, and one verb behind everything; all of them in a slow run.
PAIRS = [
    pytest.param(
        verb,
        feed,
        marks=() if verb == "aggregate" or feed == ("with-columns", "function")[number % 2] else pytest.mark.slow,
    )
    for number, verb in enumerate(BEHIND)
    for feed in FEEDS
]


def _job(feed: Feed, verb: Verb) -> hr.Job:
    pipe = hr.stream("raise", "rows")
    events = pipe.from_file("in/clicks.ndjson", format="json", schema=SCHEMA, name="clicks")
    others = pipe.from_file("in/orders.ndjson", format="json", schema=ORDERS, name="orders").watermark("at")
    made = verb(feed(events).watermark("ts", delay=LATE), others)
    written: hr.Job = made.to_file("out/table", format="json", changes="column")
    return written


def _run(directory: Path, feed: Feed, verb: Verb, *, without_bad: bool) -> Mapping[str, Counter[str]]:
    (directory / "in").mkdir(parents=True)
    lines = clicks(240, 1)
    if without_bad:
        del lines[BAD]
    (directory / "in" / "clicks.ndjson").write_text("".join(f"{line}\n" for line in lines))
    (directory / "in" / "orders.ndjson").write_text("".join(f"{line}\n" for line in orders(120, 7)))
    with within(directory):
        _job(feed, verb).run("light", **_OPTIONS)
    return outputs(directory)


def _letters(directory: Path) -> list[dict[str, Any]]:
    files = (directory / "state" / "dead-letters").glob("part-*")
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def without_bad(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Mapping[str, Counter[str]]]:
    """What a verb gives over the input without the row, which it takes as it is."""

    @cache
    def rows_of(verb: str) -> Mapping[str, Counter[str]]:
        directory = tmp_path_factory.mktemp("without")
        found = _run(directory, lambda events: events, BEHIND[verb], without_bad=True)
        assert _letters(directory) == []
        assert sum(found["table"].values()) >= 5
        return found

    return rows_of


def test_the_row_stands_where_it_can_do_harm() -> None:
    keys = [json.loads(line)["key"] for line in clicks(240, 1)]
    assert keys[BAD] is not None
    assert 0 < BAD % _BATCH < _BATCH - 1
    begin = BAD - BAD % _BATCH
    assert keys[BAD] in keys[begin:BAD], "its key has rows before it in the batch"
    assert keys[BAD] in keys[BAD + 1 : begin + _BATCH], "and behind it"


@pytest.mark.parametrize(("verb", "feed"), PAIRS)
def test_a_verb_behind_it_never_had_the_row(
    verb: str, feed: str, without_bad: Callable[[str], Mapping[str, Counter[str]]], tmp_path: Path
) -> None:
    found = _run(tmp_path, FEEDS[feed], BEHIND[verb], without_bad=False)
    assert differences(found, without_bad(verb)) == []
    assert [letter["offset"] for letter in _letters(tmp_path)] == [BAD]


@pytest.mark.parametrize("verb", INSIDE)
def test_a_verb_in_which_it_raises_has_all_other_rows_once(verb: str, tmp_path: Path) -> None:
    found = _run(tmp_path / "with", lambda events: events, INSIDE[verb], without_bad=False)
    wanted = _run(tmp_path / "without", lambda events: events, INSIDE[verb], without_bad=True)
    assert sum(wanted["table"].values()) >= 1
    assert differences(found, wanted) == []
    assert _letters(tmp_path / "without") == []
    [letter] = _letters(tmp_path / "with")
    assert str(BAD) in json.dumps(letter)


@pytest.mark.parametrize("verb", AGGREGATED)
def test_a_user_aggregate_that_raises_stops_the_job(verb: str, tmp_path: Path) -> None:
    """As documented; with a ``where`` before it that keeps the row out it does not."""
    with pytest.raises(JobFailedError, match=rf"'sum_but_bad' failed in add\({BAD}\): ValueError: {BAD} is not wanted"):
        _run(tmp_path / "with", lambda events: events, AGGREGATED[verb], without_bad=False)
    assert _letters(tmp_path / "with") == []
    wanted = _run(tmp_path / "without", lambda events: events, AGGREGATED[verb], without_bad=True)
    found = _run(tmp_path / "mended", FEEDS["where"], AGGREGATED[verb], without_bad=False)
    assert differences(found, wanted) == []
