"""Runs a history in a world of its own and says what is wrong with what came out."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import headrace as hr
from headrace.interfaces.sink import SinkSettings

from tests.simulation.histories import History
from tests.simulation.jobs import SCHEMA, Asked, bad_records, body_of, expected
from tests.simulation.jobs_beside import ALL_SHAPES
from tests.simulation.outputs import output_of
from tests.simulation.servers import SINKS, Server, Table, Topic, TopicSource, shown
from tests.simulation.starting import Outcome, Starts, run_starts


def run(history: History) -> Outcome:
    """Run a history."""
    return run_starts(lambda place: Run(history, place))


class Run(Starts):
    """One history while it runs."""

    history: History

    def __init__(self, history: History, place: str) -> None:
        super().__init__(history, place)
        self._shape = ALL_SHAPES[history.shape]
        self.keyed = self._shape.keyed
        self._topics = {
            name: Topic(
                self.world,
                name,
                {q: [(us, body_of(row)) for us, row in rows] for q, rows in queues.items()},
                trims=history.trims,
                appearing=not self._shape.timed,
                vanishing=history.vanishing,
            )
            for name, queues in history.input.items()
        }
        self._out = output_of("plain" if history.sink == "file" else history.sink, self.world, self._shape)
        self._bad = Table(self.world, "bad")
        self._asked = Server(self.world, "asked")
        for server in (*self._topics.values(), self._out.server, self._bad, self._asked):
            server.away = list(history.away.get(server.name, ()))
            server.lossy = history.lossy
        self.last_us = max(
            (us for queues in history.input.values() for rows in queues.values() for us, _ in rows), default=0
        )
        self._model = expected(self._shape, history.input)

    def job(self) -> Any:
        pipe = hr.stream("simulated", "job")
        streams = {
            name: pipe.from_(TopicSource(topic), format="json", schema=SCHEMA, name=name)
            for name, topic in self._topics.items()
        }
        stream = self._shape.build(streams)
        settings = sink_options(self.history.options)
        bad = SINKS.get(self.history.sink, SINKS["transactional"])(self._bad, SinkSettings(**settings))
        stream = stream.dead_letters(lambda letters: letters.to(bad, name="bad"))
        if self.history.sink == "file":
            directory = os.path.join(self.place, "out")
            return stream.to_file(directory, format="json", name="out", fsync=True, **settings)
        return stream.to(self._out.sink(settings), name="out")

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        with self._out.standing_in(), patch.object(Asked, "here", self._asked):
            yield

    # ------------------------------------------------------------------------------------------------- checks

    def look(self, *, final: bool) -> None:
        promised = self.history.sink != "plain" and not self.doubled
        if final:
            self._out.settle()
        there = self._rows()
        if self.history.sink != "plain" and not self.written_behind:
            self.wrong += self._out.faults + self._bad.faults
        if not self._shape.changes:
            wrong = there - self._model
            if not promised:
                wrong = Counter({text: count for text, count in wrong.items() if text not in self._model})
            if wrong:
                self.wrong.append(f"rows that must not be there: {dict(wrong)}")
        if not final:
            return
        missing = self._model - there
        if missing:
            self.wrong.append(f"rows are missing: {dict(missing)}")
        if self._shape.changes and promised and there != self._model:
            self.wrong.append(f"rows that must not be there: {dict(there - self._model)}")
        bad, letters = bad_records(self.history.input), sum(self._bad.there().values())
        if letters < bad or (promised and letters > bad):
            self.wrong.append(f"{letters} dead letters of {bad} bad records")

    def _rows(self) -> Counter[str]:
        if self.history.sink != "file":
            return self._out.there()
        found: Counter[str] = Counter()
        for path in sorted(Path(self.place, "out").glob("*.json*")):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                times = {name: datetime.fromisoformat(row[name]) for name in row if name.startswith("window_")}
                found[shown({**row, **times})] += 1
        return found


def sink_options(options: Any) -> dict[str, Any]:
    """Return the options of a history that its sinks have."""
    return {
        "batch_size": options["batch_size"],
        "flush_interval": timedelta(seconds=options["flush_interval"]),
        "max_cached_rows": options["max_cached_rows"],
    }
