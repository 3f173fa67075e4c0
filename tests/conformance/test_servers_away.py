"""Functions behind a shuffle whose server is away for a while: their calls are repeated, no row is counted twice."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import JobFailedError, RetriableError
from headrace.interfaces.backend import JobState
from headrace.testing import MemorySink, MemorySource

from tests.conformance.case import outputs

BACKENDS = ["light", pytest.param("spark", marks=pytest.mark.spark)]
SCHEMA = {"key": "string", "n": "int64", "ts": "timestamp"}
ROWS = [{"key": f"k{n % 5}", "n": n, "ts": f"2024-01-01T00:00:{n:02d}Z"} for n in range(40)]
OUT = {"key": "string", "n": "int64"}
#: Kinds of calls that are made for each row.
FREQUENT = ("row-", "timer-", "plus-", "longest-", "shown-")


class Server:
    """Is away for the first call that asks for a thing, in whichever process; for one of three things of
    the frequent kinds, since each outage takes a pause."""

    def __init__(self, marks: Path, *, is_flaky: bool) -> None:
        self._marks, self._is_flaky = marks, is_flaky
        marks.mkdir(exist_ok=True)

    def ask(self, what: str) -> None:
        if not self._is_flaky or (what.startswith(FREQUENT) and zlib.crc32(what.encode()) % 3):
            return
        try:
            (self._marks / what).touch(exist_ok=False)
        except FileExistsError:
            return
        raise RetriableError(f"connection refused, while asked for {what}")


class Remembering:
    """Counts the rows of a key, and gives the count again by a timer."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def process(self, row: dict[str, Any], state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
        count = state["n"] = state.get("n", 0) + 1
        timers.at_event_time(row.pop("ts") + timedelta(seconds=30))
        yield {"key": row["key"], "n": count}
        self.server.ask(f"row-{row['n']}")

    def on_timer(self, key: str, time: Any, state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
        state["n"] = count = state["n"] + 100
        yield {"key": key, "n": count}
        self.server.ask(f"timer-{key}-{time.second}")


class Adding:
    """A user aggregate: its state has changed when a call finds the server away."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def create(self) -> dict[str, Any]:
        return {"sum": 0, "seen": []}

    def add(self, state: dict[str, Any], number: int) -> dict[str, Any]:
        state["sum"] += number
        state["seen"].append(number)
        if number % 7 == 0:
            self.server.ask(f"add-{number}")
        return state

    def merge(self, state: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        state["sum"] += other["sum"]
        state["seen"] += other["seen"]
        if state["sum"] % 7 == 0:
            self.server.ask(f"merge-{state['sum']}")
        return state

    def result(self, state: dict[str, Any]) -> int:
        state["sum"] += 1000 * len(state["seen"])
        if state["sum"] % 7 == 0:
            self.server.ask(f"result-{state['sum']}")
        return int(state["sum"])


def job(directory: Path, server: Server) -> hr.Job:
    """Ask the server in each kind of function behind a shuffle."""

    def plus(before: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        before["n"] += row["n"]
        server.ask(f"plus-{row['n']}")
        return before

    def longest(before: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        server.ask(f"longest-{row['n']}")
        return max(before, row, key=lambda each: each["n"])

    def shown(row: dict[str, Any]) -> dict[str, Any]:
        server.ask(f"shown-{row['key']}-{row['n']}")
        return row

    def to(stream: hr.Stream, name: str, **options: Any) -> hr.Job:
        written: hr.Job = stream.to_file(f"{directory}/out/{name}", format="json", name=name, **options)
        return written

    rows = hr.stream("conformance", "away").from_file(f"{directory}/in.ndjson", format="json", schema=SCHEMA)
    keyed = rows.watermark("ts").key_by("key")
    reduced = keyed.reduce(plus).select("key", "n")
    windowed = keyed.window(hr.tumbling("10 s", on="ts")).reduce(longest)
    hr.udaf(returns="int64", name="adding")(Adding(server))
    folded = keyed.agg(n="adding(n)")
    in_windows = keyed.window(hr.sliding("20 s", every="10 s", on="ts")).agg(n="adding(n) - 1")
    counted = keyed.window(hr.tumbling("10 s", on="ts")).agg(n="count(*)").select("key", "n").map(shown, schema=OUT)
    made = to(keyed.process(Remembering(server), schema=OUT), "processed")
    made = made.also(to(reduced, "table-reduced", changes="column")).also(to(windowed, "windowed"))
    made = made.also(to(folded, "table-folded", changes="column")).also(to(in_windows, "folded-in-windows"))
    return made.also(to(counted, "counted"))


def output_of(directory: Path, backend: str, *, is_flaky: bool) -> tuple[Any, set[str]]:
    directory.mkdir()
    (directory / "in.ndjson").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    marks = directory / "marks"
    job(directory, Server(marks, is_flaky=is_flaky)).run(backend, max_batch_records=7, show_progress=False)
    return outputs(directory), {mark.name for mark in marks.iterdir()}


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_are_those_of_a_server_that_is_always_there(backend: str, tmp_path: Path) -> None:
    wanted, _ = output_of(tmp_path / "there", "light", is_flaky=False)
    found, outages = output_of(tmp_path / "away", backend, is_flaky=True)
    assert found == wanted
    assert {name: sum(rows.values()) for name, rows in wanted.items()} == {
        "processed": 80, "table-reduced": 5, "windowed": 20, "counted": 20, "table-folded": 5, "folded-in-windows": 25,
    }  # fmt: skip
    kinds = {what.partition("-")[0] for what in outages}
    # How often parts are merged is up to the backend.
    wanted_kinds = {"row", "timer", "add", "result", "plus", "longest", "shown"}
    assert kinds >= wanted_kinds, "every kind of call has met an outage"
    assert len(outages) > 20


def always_away(row: dict[str, Any]) -> dict[str, Any]:
    raise RetriableError("connection refused")


def counts() -> hr.Job:
    source = MemorySource({"a": [json.dumps({"k": n}).encode() for n in range(3)]})
    rows = hr.stream("conformance", "always-away").from_(source, format="json", schema={"k": "int64"})
    return rows.key_by("k").agg(n="count(*)").map(always_away, schema={"k": "int64"}).to(MemorySink())


def test_a_server_that_stays_away_fails_the_job() -> None:
    with pytest.raises(JobFailedError, match=r"server that an operator uses was not available: .*connection refused"):
        counts().run("light", retry_timeout="200 ms", show_progress=False)


def test_a_job_that_waits_for_a_server_can_be_stopped(caplog: pytest.LogCaptureFixture) -> None:
    handle = counts().start("light", retry_timeout="1 h")
    waits = threading.Event()
    for _ in range(2_000):
        if "an operator waits for its server" in caplog.text or waits.wait(0.01):
            break
    handle.stop(timedelta(seconds=20))
    assert handle.status().state is JobState.FAILED
    assert "stopped while the server that an operator uses was not available" in str(handle.status().error)
