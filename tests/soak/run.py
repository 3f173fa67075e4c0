"""``python -m tests.soak.run --hours 4``: jobs on real servers under faults, each row checked as it appears, and a page of what was seen.

Kafka → windows and a join in two instances of light → MySQL; Kafka → rules that are replaced, with worker processes → RocketMQ;
Kafka → Spark → Elasticsearch. ``--no-spark`` runs the last on light. Ends with an error at the first row that is wrong or comes twice,
for one that is missing at the end, for an instance that ends by itself, and for what grows.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.eventually import eventually
from tests.soak.faults import schedule
from tests.soak.feeding import Feed
from tests.soak.model import QUEUES, copies
from tests.soak.report import GROWTH_MAX, bounded, write
from tests.soak.stores import Stored
from tests.soak.watching import Sample, Usage, bytes_below, percentiles, usage_of
from tests.soak.world import SoakWorld, feed_of, soak_world

LOOK_SECONDS = 10.0
SAMPLE_SECONDS = 60.0
#: Documents are looked at so long after their events: faults of servers delay them.
_INDEX_BEHIND_SECONDS = 240.0
_CATCH_UP_SECONDS = 900.0


class Run:
    """The loop of a soak: faults, looks, samples."""

    def __init__(self, world: SoakWorld, feed: Feed, given: argparse.Namespace) -> None:
        self._world = world
        self._feed = feed
        self._given = given
        self.samples: list[dict[str, Any]] = []
        self.latency: dict[str, list[float]] = defaultdict(list)
        self._new: dict[str, list[float]] = defaultdict(list)

    def go(self) -> None:
        """Run until the time is over. Raises AssertionError for the first thing that is wrong."""
        world, given = self._world, self._given
        faults = schedule(given.seed, given.every)
        fault = next(faults)
        end = time.monotonic() + given.hours * 3600
        next_fault = time.monotonic() + fault.after_seconds
        next_look = next_sample = time.monotonic() + LOOK_SECONDS
        while (now := time.monotonic()) < end:
            if now >= next_fault:
                world.strike(fault)
                fault = next(faults)
                next_fault = time.monotonic() + fault.after_seconds
            if now >= next_look:
                self.look()
                world.check_instances()
                next_look = time.monotonic() + LOOK_SECONDS
            if now >= next_sample:
                self.sample()
                next_sample = time.monotonic() + SAMPLE_SECONDS
            time.sleep(0.2)

    def look(self) -> None:
        """Check what is new in the table and the topic."""
        world = self._world
        self._time("table rows", world.tables.look())
        self._time("alerts", world.alerts.look(world.versions))

    def _time(self, what: str, stored: list[Stored]) -> None:
        for number, at in stored:
            # A window needs an event of each queue behind its end.
            begun = self._feed.sent_at(number)
            if begun is not None:
                self._new[what].append(max(0.0, at - begun))

    def sample(self) -> None:
        """Note what is used, and check the documents of events that are old enough."""
        world = self._world
        old = time.time() - _INDEX_BEHIND_SECONDS
        behind = next((first for first, at in zip(self._feed.firsts, self._feed.times, strict=False) if at > old), 0)
        world.index.look(behind)
        usage: dict[str, Usage] = {}
        for each in world.running:
            found, total = usage_of(each.instance.process.pid), usage.setdefault(each.job, Usage())
            for name, value in vars(found).items():
                setattr(total, name, getattr(total, name) + value)
        rows = {
            "windows": world.tables.windows.count, "pairs": world.tables.pairs.count, "alerts": world.alerts.alerts.count,
            "documents": world.index.stored(),
        }  # fmt: skip
        # Of what runs: an instance with its state in topics has a directory of its own, which stays when it has gone.
        directories = {world.checkpoint_of(each.job, each.instance.name) for each in world.running}
        sample = Sample(
            round(world.seconds, 1), self._feed.sent, rows, usage, world.tables.connections(), round(bytes_below(directories) / 1e6, 2),
            {what: percentiles(values) for what, values in self._new.items()},
        )  # fmt: skip
        for what, values in self._new.items():
            self.latency[what] += values
        self._new.clear()
        self.samples.append(sample.to_json())
        with (world.directory / "samples.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(self.samples[-1]) + "\n")
        print(f"{world.seconds:8.1f} s  {self._feed.sent:,} events, {rows}, {sample.latency}", flush=True)

    def finish(self) -> None:
        """End the input, wait for every row, check all of them, and let the instances end."""
        world = self._world
        events = self._feed.stop()
        world.tables.windows.events = events
        world.note(f"no more events after {events:,}")

        def all_there() -> bool:
            self.look()
            world.check_instances()
            tables, alerts = world.tables, world.alerts.alerts
            return not (tables.windows.missing(events) or tables.pairs.missing(events) or alerts.missing(events))

        eventually(all_there, "every window, pair and alert is there", seconds=_CATCH_UP_SECONDS, pause_seconds=1)
        wanted = sum(copies(number) for number in range(events))
        eventually(
            lambda: world.index.stored() >= wanted,
            f"{wanted} documents are there",
            seconds=_CATCH_UP_SECONDS,
            pause_seconds=1,
        )
        world.index.begin_again()
        world.index.look(events)
        missing = world.index.documents.missing(events)
        assert not missing, f"{len(missing)} documents are missing, such as {missing[:5]}"
        assert world.index.stored() == wanted
        world.stop_all()
        self.look()
        self.sample()


def about(run: Run, world: SoakWorld, given: argparse.Namespace, failure: str) -> dict[str, Any]:
    """Return what the page says first."""
    return {
        "result": failure or "every row once, none wrong at any moment",
        "hours": round(world.seconds / 3600, 2),
        "seed": given.seed,
        "events": f"{run._feed.sent:,} in {QUEUES} partitions, {given.per_second} a second",
        "rows": f"{world.tables.windows.count:,} windows, {world.tables.pairs.count:,} pairs, {world.alerts.alerts.count:,} alerts, "
        f"{world.index.documents.count:,} documents",
        "faults": ", ".join(f"{count} {kind}" for kind, count in sorted(world.done.items())),
        "versions of rules": f"{world.versions}, the newest in use: {world.alerts.alerts.version}",
        "messages that were written again, and told to be so": world.alerts.repeated,
        "instances that ended by themselves after a fault": len(world.ended),
        "latency": "; ".join(f"{what}: {percentiles(values)}" for what, values in sorted(run.latency.items())),
    }


def soak(world: SoakWorld, given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Run it and write the page. Returns what the page says first, and what is wrong (empty: nothing)."""
    for job in ("windows", "windows", "rules", "documents"):
        world.start(job)
    run, failure = Run(world, feed_of(world, given.per_second, given.bursts), given), ""
    try:
        run.go()
        run.finish()
    except AssertionError as error:
        failure = str(error)
        print(failure, file=sys.stderr, flush=True)
    growing = [name for name, value in bounded(run.samples).items() if value > GROWTH_MAX]
    if growing and not failure:
        failure = f"grows: {', '.join(growing)}"
    said = about(run, world, given, failure)
    (world.directory / "about.json").write_text(json.dumps([said, world.history]))
    write(given.page, said, run.samples, world.history)
    return said, failure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-second", type=int, default=200, help="events a second")
    parser.add_argument("--bursts", type=int, default=20, help="in how many bursts a second they come")
    parser.add_argument("--checkpoint-interval", default="300 ms", help="of the jobs on light")
    parser.add_argument("--every", type=float, default=25.0, help="mean seconds between two faults")
    parser.add_argument("--no-spark", dest="spark", action="store_false", help="documents by light instead of Spark")
    parser.add_argument("--keep", type=Path, help="directory for logs, checkpoints and samples")
    parser.add_argument("--page", type=Path, default=Path("demo-output/soak.md"))
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-soak-") as scratch,
        soak_world(
            given.keep or Path(scratch), given.seed, spark=given.spark, checkpoint_interval=given.checkpoint_interval
        ) as world,
    ):
        said, failure = soak(world, given)
    print(json.dumps(said, indent=1), flush=True)
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
