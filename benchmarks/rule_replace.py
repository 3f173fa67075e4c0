"""What replacing 1,000 rules costs the messages that come meanwhile, in a whole job on light.

    python -m benchmarks.rule_replace [--batches 2000] [--interval-ms 20] [--every 250] [--objects 1000000]
    python -m benchmarks.rule_replace measure never|handle|files BATCHES INTERVAL_MS EVERY OBJECTS     # one run, as JSON

A batch of 1,000 messages (see benchmarks/rules.py) falls due every so many milliseconds, whether the job is ready for it or not.
Its latency is the time from then until the job, done with it, asks for the next one. Every so many batches all 1,000 rules
are replaced by others, through ``handle.update_rules`` or by writing a YAML file that the job watches. ``OBJECTS`` are held
by the process all the while, as those of a larger program are: they are what a full garbage collection walks over.

What comes out is compared row by row with what the version gives that holds at the row's offset: ``lost`` and ``doubled``
count the differences. ``meanwhile`` are the batches from when new rules are given until five batches after they hold;
``taken`` is what a batch itself took, without waiting for those before it and for a processor that others had.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml
from headrace.flow.messages import OFFSET, Bodies, Queue, RawBatch, ReadPosition
from headrace.flow.schema import Schema
from headrace.interfaces.sink import Sink, SinkBatch
from headrace.interfaces.source import Reader, Source, StartPosition

from benchmarks.measure import measure
from benchmarks.rule_sets import COLUMNS, rule_set
from demo.security_events import events

BATCH = 1_000
DIFFERENT = 20
SETS = 4
WARM_BATCHES = 50
HOWS = ("never", "handle", "files")

Rules = Sequence[Mapping[str, str]]


class PacedSource(Source):
    """One queue of batches, each due at a time of its own; notes when each is done with."""

    def __init__(self, batches: Sequence[Sequence[bytes]], count: int, interval_seconds: float) -> None:
        self.batches = batches
        self.count = count
        self.interval_seconds = interval_seconds
        self.latencies_seconds: list[float] = []
        #: Of these, what the batch itself took, without waiting for those before it.
        self.taken_seconds: list[float] = []
        #: Of these, what the thread waited for a processor that others had.
        self.waited_seconds: list[float] = []
        self.begun: float | None = None
        self.done = threading.Event()

    def queues(self) -> list[Queue]:
        return [Queue("q")]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        return _PacedReader(self)


class _PacedReader(Reader):
    def __init__(self, source: PacedSource) -> None:
        self._source = source
        self._next = 0
        self._at_work = False
        self._waited = self._given = 0.0

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        source, now = self._source, time.perf_counter()
        if self._at_work:
            assert source.begun is not None
            due = source.begun + (self._next - 1) * source.interval_seconds
            source.latencies_seconds.append(now - due)
            source.taken_seconds.append(now - self._given)
            source.waited_seconds.append(waited_seconds() - self._waited)
            self._at_work = False
        if self._next == source.count:
            source.done.set()
            return None
        source.begun = source.begun or now
        time.sleep(max(0.0, source.begun + self._next * source.interval_seconds - now))
        self._waited = waited_seconds()
        bodies = source.batches[self._next % DIFFERENT]
        offsets = np.arange(self._next * BATCH, (self._next + 1) * BATCH)
        self._next += 1
        self._at_work, self._given = True, time.perf_counter()
        return RawBatch(offsets, self.position, bodies=Bodies.of(bodies))

    def seek(self, position: ReadPosition) -> None:
        self._next = position.offset // BATCH

    @property
    def position(self) -> ReadPosition:
        return ReadPosition(self._next * BATCH)

    @property
    def earliest(self) -> int:
        return 0

    @property
    def latest(self) -> int:
        return self._source.count * BATCH


class KeptMatches(Sink):
    """Keeps what came out as (offset, ids of the rules)."""

    def __init__(self) -> None:
        self.frames: list[pl.DataFrame] = []
        self.queue_id = ""

    def batch_insert(self, batch: SinkBatch) -> None:
        self.queue_id = batch.queue.id
        self.frames.append(batch.frame.select(OFFSET, "rule_ids"))

    def counted(self) -> Counter[tuple[int, str]]:
        """Return how often each rule matched each record."""
        together = pl.concat(self.frames).explode("rule_ids")
        return Counter(together.rows())


def waited_seconds() -> float:
    """Return how long this thread has waited for a processor that others had (Linux; else 0)."""
    try:
        text = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text()
    except OSError:
        return 0.0
    return int(text.split()[1]) / 1e9


class FullCollections:
    """Notes how long each garbage collection of the oldest generation takes."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._begun = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] == 2 and phase == "start":
            self._begun = time.perf_counter()
        elif info["generation"] == 2:
            self.seconds.append(time.perf_counter() - self._begun)


def run(how: str, count: int, interval_ms: float, every: int, objects: int) -> dict[str, Any]:
    """Run the job once; return latencies, and what was lost or doubled."""
    import headrace as hr
    from headrace_rules.journal import RuleJournal

    bodies = [json.dumps(event).encode() for event in events(BATCH * DIFFERENT, suspicious_share=0.01)]
    batches = [bodies[start : start + BATCH] for start in range(0, len(bodies), BATCH)]
    versions = [_version(number) for number in range((count - every // 2) // every + 1)]
    ballast = [[number] for number in range(objects)]
    source, sink = PacedSource(batches, count, interval_ms / 1000), KeptMatches()
    moments: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as place:
        file = Path(place) / "rules.yaml"
        texts = [yaml.safe_dump([dict(rule) for rule in rules]) for rules in versions]
        write_file(file, texts[0])
        stream = hr.stream("benchmark", "rules").from_(source, format="json", schema=COLUMNS)
        watched = {"reload_interval": "100 ms"} if how == "files" else {}
        job = stream.rules(str(file), **watched).to(sink)
        full = FullCollections()
        with job.start("light", checkpoint=f"{place}/state", checkpoint_interval="1 h",
                       max_batch_records=BATCH) as handle:  # fmt: skip
            for number in range(1, len(versions)) if how != "never" else ():
                while len(source.latencies_seconds) < number * every:
                    time.sleep(0.001)
                begun = time.perf_counter()
                if how == "handle":
                    handle.update_rules(versions[number], who="benchmark")
                else:
                    write_file(file, texts[number])
                moments.append((len(source.latencies_seconds), time.perf_counter() - begun))
            source.done.wait()
        switches = RuleJournal(f"{place}/state/rules/rules").switches(sink.queue_id)
    assert len(ballast) == objects
    found, wanted = sink.counted(), expected(bodies, versions, switches, count)
    return {
        **told(source, every, moments, switches), "matches": found.total(), "lost": (wanted - found).total(),
        "doubled": (found - wanted).total(), "load": os.getloadavg()[0],
        "full_collections_ms": [round(each * 1000, 1) for each in full.seconds],
    }  # fmt: skip


def _version(number: int) -> Rules:
    """Return the rules of a version; their ids tell it."""
    return [{**rule, "id": f"v{number}-{rule['id']}"} for rule in rule_set("selective", 1_000, seed=number % SETS)]


def write_file(file: Path, text: str) -> None:
    """Write a file, all at once."""
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)


def expected(
    bodies: Sequence[bytes], versions: Sequence[Rules], switches: Sequence[tuple[int, int]], batches: int
) -> Counter[tuple[int, str]]:
    """Return which rules match which records, each version by an engine of its own from its recorded offset on."""
    from headrace_rules.engine import RuleEngine

    frame = pl.read_ndjson(b"\n".join(bodies), schema=dict(Schema.of(COLUMNS)))
    found: Counter[tuple[int, str]] = Counter()
    borders = [(0, 1), *switches]
    for (begin, number), end in zip(borders, [*(first for first, _ in borders[1:]), batches * BATCH], strict=True):
        rules = versions[number - 1]
        matches = RuleEngine([rule["expression"] for rule in rules], Schema.of(COLUMNS)).evaluate(frame)
        for row, rule in zip(matches.rows.tolist(), matches.rule_numbers.tolist(), strict=True):
            for offset in range(begin + (row - begin) % len(bodies), end, len(bodies)):
                found[offset, rules[rule]["id"]] += 1
    return found


def told(
    source: PacedSource, every: int, moments: Sequence[tuple[int, float]], switches: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    """Return figures of all batches, and of those that came while rules were being replaced."""
    latencies = np.array(source.latencies_seconds) * 1000
    taken = (np.array(source.taken_seconds) - np.array(source.waited_seconds)) * 1000
    meanwhile = np.zeros(len(latencies), dtype=bool)
    ends = {number: offset // BATCH for offset, number in switches}
    for number in range(2, len(moments) + 2):
        meanwhile[(number - 1) * every : ends.get(number, len(latencies)) + 5] = True
    every_one = np.arange(len(latencies)) >= WARM_BATCHES
    return {
        "all_ms": _quantiles(latencies[every_one]), "all_taken_ms": _quantiles(taken[every_one]),
        "meanwhile_ms": _quantiles(latencies[meanwhile]), "meanwhile_taken_ms": _quantiles(taken[meanwhile]),
        "meanwhile_batches": int(meanwhile.sum()), "replaced": len(moments), "switches": len(switches),
        "given_seconds": max((seconds for _, seconds in moments), default=0.0),
    }  # fmt: skip


def _quantiles(values: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float]:
    if not len(values):
        return {}
    return {
        "p50": round(float(np.quantile(values, 0.5)), 2), "p99": round(float(np.quantile(values, 0.99)), 2),
        "max": round(float(values.max()), 2),
    }  # fmt: skip


def everything(
    *,
    batches: int,
    every: int,
    interval_ms: float = 20.0,
    objects: int = 1_000_000,
    hows: Sequence[str] = HOWS,
    cores: Sequence[int] | None = None,
) -> dict[str, Mapping[str, Any]]:
    """Run each way of replacing, in a process of its own, and print its figures as they come."""
    found: dict[str, Mapping[str, Any]] = {}
    for how in hows:
        arguments = (how, str(batches), str(interval_ms), str(every), str(objects))
        environment = {"POLARS_MAX_THREADS": "1"}
        taken = measure("benchmarks.rule_replace", "measure", *arguments, cores=cores, environment=environment)
        found[how] = {**taken.figures, "cpu_seconds": round(taken.cpu_seconds, 1)}
        print(how, json.dumps(found[how]), flush=True)
    return found


def main() -> None:
    if sys.argv[1:2] == ["measure"]:
        how, count, interval_ms, every, objects = sys.argv[2:]
        print(json.dumps(run(how, int(count), float(interval_ms), int(every), int(objects))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=2_000)
    parser.add_argument("--interval-ms", type=float, default=20.0)
    parser.add_argument("--every", type=int, default=250, help="batches from one replacement to the next")
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--how", nargs="*", choices=HOWS, default=HOWS)
    parser.add_argument("--cores", type=int, nargs="*")
    given = parser.parse_args()
    everything(batches=given.batches, every=given.every, interval_ms=given.interval_ms, objects=given.objects,
               hows=given.how, cores=given.cores)  # fmt: skip


if __name__ == "__main__":
    main()
