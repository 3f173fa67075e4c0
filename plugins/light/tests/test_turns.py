"""Very many queues: which of them a round looks at."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.flow.messages import Queue
from headrace.foundation.clock import ManualClock
from headrace.testing import MemorySink
from headrace_light.lags import Lags
from headrace_light.turns import FEW_QUEUES, Turns
from test_idle_engine import EngineClock, WatchedSource, running

from tests.eventually import eventually

MANY = 5_000
LOOK_SECONDS = 0.001


@dataclass(eq=False)
class Looked:
    """In place of a queue's run: what turns ask of it."""

    name: int
    at_latest: bool = True


class Rounds:
    """Rounds of looks at queues that have nothing, except for those that are named."""

    def __init__(self, count: int = MANY) -> None:
        self.clock = ManualClock()
        self.turns = Turns(self.clock)
        self.runs: list[Any] = [Looked(name) for name in range(count)]
        for run in self.runs:
            self.turns.begin(run)

    def look(self, *, with_records: tuple[int, ...] = (), pause_seconds: float = 0.2) -> list[int]:
        """Make a round and a pause; return who was looked at."""
        looked = []
        run: Any
        for run in self.turns.of_round():
            self.clock.advance(LOOK_SECONDS)
            looked.append(run.name)
            self.turns.looked(run, came=run.name in with_records)
        self.clock.advance(pause_seconds)
        assert len(looked) == len(set(looked)), "a queue was looked at twice in a round"
        return looked


def test_the_first_round_looks_at_all_queues() -> None:
    assert Rounds().look() == list(range(MANY))


def test_idle_queues_have_their_turns_and_take_little_time() -> None:
    rounds = Rounds()
    rounds.look()
    looks: Counter[int] = Counter()
    begun = rounds.clock.monotonic()
    for _ in range(200):
        looks.update(rounds.look(pause_seconds=10.0))
    assert set(looks) == set(range(MANY)), "a queue was never looked at"
    idle = sorted(looks.values())[:-300]
    assert idle[-1] - idle[0] <= 1, "idle queues are not looked at equally often"
    share = looks.total() * LOOK_SECONDS / (rounds.clock.monotonic() - begun)
    assert share <= 0.1, f"looking takes {share:.0%} of the time"


def test_a_queue_with_records_is_looked_at_in_each_round_from_then_on() -> None:
    rounds = Rounds()
    for _ in range(3):
        rounds.look()
    while 7 not in rounds.look(with_records=(7,)):
        pass
    for _ in range(50):
        assert 7 in rounds.look()


def test_a_queue_with_a_backlog_is_looked_at_in_each_round_whatever_others_do() -> None:
    rounds = Rounds()
    for run in rounds.runs:
        run.at_latest = False
    everything = tuple(range(MANY))
    for _ in range(3):
        assert len(rounds.look(with_records=everything)) == MANY


def test_a_queue_that_has_ended_is_not_looked_at() -> None:
    rounds = Rounds()
    rounds.look()
    for run in rounds.runs[::2]:
        rounds.turns.end(run)
    looked = {name for _ in range(100) for name in rounds.look(pause_seconds=10.0)}
    assert looked == set(range(1, MANY, 2))


class Asked:
    """In place of a queue's run: counts how often its end is asked for."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.times = 0

    def refresh_latest(self) -> bool:
        self.clock.advance(LOOK_SECONDS)
        self.times += 1
        return True


def test_ends_of_very_many_queues_are_asked_for_in_turn() -> None:
    clock = ManualClock()
    runs: Any = {Queue(str(name)): Asked(clock) for name in range(MANY)}
    lags = Lags(clock, timedelta(seconds=2))
    lags.refresh(runs)
    asked = sum(run.times for run in runs.values())
    assert 0 < asked < MANY / 4
    for _ in range(MANY // asked):
        lags.refresh(runs)
    assert {run.times for run in runs.values()} == {1, 2}


def test_a_record_in_any_of_very_many_queues_comes(tmp_path: Path) -> None:
    clock, sink = EngineClock(), MemorySink(hr.SinkSettings(flush_interval=timedelta(0)))
    names = [f"{number:04d}" for number in range(2 * FEW_QUEUES)]
    source = WatchedSource(clock, names, waits=False)
    job = hr.stream("test", "many").from_(source, format="json", schema={"n": "int64"}).to(sink)
    with running(job, clock):
        eventually(lambda: all(source.looks.values()), "a look at each queue")
        for number in (0, 700, 1023):
            source.append(names[number], b'{"n": %d}' % number)
            eventually(lambda: sink.rows and sink.rows[-1]["n"] == number, f"the record {number}")  # noqa: B023
