"""Damage to anything that a checkpoint stands on: the job goes on exactly, or says which file is damaged. Never a wrong row.

A round is a start of the job by the light backend up to where it would read on: it must have exactly what an undamaged start
has (place in each queue, state of each shard, positions of each sink), or be refused. Where it has something else, and in one
round of ``WHOLE_EVERY``, the job is run to the end of its input, and its rows must be those of an undamaged run.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from headrace.flow.messages import Queue
from headrace.foundation.clock import SystemClock
from headrace.foundation.errors import CheckpointError, HeadraceError
from headrace.interfaces.backend import RunOptions
from headrace.jobs.job import options_of
from headrace_light.backend import LightBackend
from headrace_light.engine import Engine
from headrace_light.stages.local import LocalStages
from headrace_spark.transit.payload import pickled, unpickled

from tests.conformance.damaged_jobs import JOBS, DamagedJob, Stopped, made, stopped
from tests.conformance.damaging import chance, damage, job, lay, rounds, rows, same_states

#: Of so many rounds one is a whole run of the job.
WHOLE_EVERY = int(os.environ.get("DAMAGE_WHOLE_EVERY", "25"))
#: How many of ``JOBS`` are damaged; a long run damages all.
JOBS_TRIED = JOBS if "DAMAGE" in os.environ else JOBS[:2]
SHARDS = 2


@dataclass(frozen=True)
class Loaded:
    """What a start goes on with."""

    positions: dict[str, Any]
    sequence: int
    states: tuple[bytes, ...]
    sinks: dict[str, Any]

    def same(self, other: Loaded) -> bool:
        """Return whether both are the same, whatever order verbs keep their rows in."""
        return self == other or (
            replace(self, states=()) == replace(other, states=()) and same_states(self.states, other.states)
        )


@dataclass
class World:
    """A job in the middle of its input, in a directory of its own."""

    place: Path
    stopped: Stopped
    plan: bytes
    right: Loaded
    refused: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, made_of: DamagedJob, place: Path) -> World:
        found = stopped(made_of, "light", shards=SHARDS, max_batch_records=60)
        found.put_back()
        options, _ = options_of(LightBackend, "light", {**found.start, "until": None})
        plan = pickled(made_of.build(Path(".")).plan(options), "damage")
        right = loaded(plan, options, found)
        found.put_back()
        assert loaded(plan, options, found).same(right), "a start gives what another one gives"
        return cls(place, found, plan, right)

    def options(self) -> RunOptions:
        return options_of(LightBackend, "light", {**self.stopped.start, "until": None})[0]

    def load(self) -> Loaded:
        return loaded(self.plan, self.options(), self.stopped)

    def run(self) -> None:
        self.stopped.job.build(Path(".")).run("light", **self.stopped.start)


def loaded(plan_bytes: bytes, options: RunOptions, found: Stopped) -> Loaded:
    """Start a job but for its thread, which reads; return what it has."""
    _, settings = options_of(LightBackend, "light", dict(found.start))
    started: list[Engine] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "start", lambda engine: started.append(engine))
        LightBackend(settings, SystemClock()).start(unpickled(plan_bytes), options)
    [engine] = started
    try:
        assert isinstance(engine._stages, LocalStages)
        shards = engine._stages._all()
        queues = [*engine._runs, *(shard.queue for shard in shards)]
        return Loaded(
            {queue.id: (run.position.to_json(), run.broken) for queue, run in engine._runs.items()},
            # A start from a savepoint numbers its entries from the clock on: no two starts have the same.
            0 if found.job.savepoint else engine._stages.sequence,
            tuple(shard.snapshot() for shard in shards),
            {name: _positions(sink, queues) for name, sink in engine._outlets.sinks_to_ask().items()},
        )
    finally:
        engine._close_parts()
        engine._directory.close()


def _positions(sink: Any, queues: list[Queue]) -> dict[str, Any]:
    return {queue.id: sink.last_offset(queue) for queue in queues}


@pytest.fixture(scope="module", params=JOBS_TRIED, ids=[each.name for each in JOBS_TRIED])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp(request.param.name)
        patch.chdir(place)
        yield World.of(request.param, place)


def test_no_damage_gives_a_wrong_row(world: World) -> None:
    numbers = rounds(40 * len(JOBS_TRIED))
    tried, begun = 0, time.process_time()
    for number in numbers[JOBS_TRIED.index(world.stopped.job) :: len(JOBS_TRIED)]:
        tried += 1
        whole = number // len(JOBS_TRIED) % WHOLE_EVERY == WHOLE_EVERY - 1
        world.stopped.put_back()
        done = damage(chance(number), world.stopped.names, *world.stopped.others)
        if not whole:
            try:
                whole = not world.load().same(world.right)
            except HeadraceError:
                world.refused["loading"] += 1
                continue
            if not whole:
                world.refused["went on"] += 1
                continue
            world.stopped.put_back()
            damage(chance(number), world.stopped.names, *world.stopped.others)
        try:
            world.run()
        except HeadraceError:
            world.refused["running"] += 1
        else:
            world.refused["ran"] += 1
            assert made() == world.stopped.wanted, f"round {number}: {done}"
    # Shown by pytest -s, so that a long run tells what it has done.
    print(
        f"{world.stopped.job.name}: {tried} rounds, {time.process_time() - begun:.0f} s of CPU, {dict(world.refused)}",
        flush=True,
    )
    assert world.refused["loading"] > tried // 10


def run() -> None:
    job().run("light", checkpoint="state", shards=SHARDS, max_batch_records=25)


def stored_files() -> list[Path]:
    return sorted(path for path in Path("state", "light").rglob("*") if path.is_file() and path.name != "lock")


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Lay out a job that has made two checkpoints, and return what it comes to with a third file."""
    monkeypatch.chdir(tmp_path)
    lay(3)
    run()
    shutil.move("state", "foreign")
    shutil.rmtree("out")
    Path("in/3.ndjson").unlink()
    for number in (1, 2):
        lay(number)
        run()
    shutil.copytree("state", "kept-state")
    shutil.copytree("out", "kept-out")
    lay(3)
    run()
    return rows()


def test_a_checkpoint_says_what_it_stands_on(prepared: Counter[str]) -> None:
    stored = json.loads(Path("state/light/checkpoint.json").read_text())
    names = {
        path.parent.name + "/" + path.name.split(".")[0].lstrip("0")
        for path in stored_files()
        if path.suffix in (".delta", ".snapshot")
    }
    assert sum(len(chain) for chain in stored["states"].values()) == len(names)


#: What is done to the state, and what the refusal says of it.
NAMED = {
    "remove": "is missing, and the checkpoint refers to it",
    "empty": "is damaged, or does not belong to the checkpoint",
    "foreign": "is damaged, or does not belong to the checkpoint",
    "older": "is missing, and the checkpoint refers to it",
}


@pytest.mark.parametrize("how", NAMED)
def test_keyed_state_that_is_not_there_is_never_taken_for_empty(how: str, prepared: Counter[str]) -> None:
    for name in ("state", "out"):
        shutil.rmtree(name)
        shutil.copytree(f"kept-{name}", name)
    states = [path for path in stored_files() if path.suffix in (".delta", ".snapshot")]
    if how == "older":  # the state of a checkpoint before
        states[-1].unlink()
    for path in states if how != "older" else ():
        if how == "empty":
            path.write_bytes(b"")
        elif how == "remove":
            path.unlink()
    if how == "foreign":
        shutil.rmtree("state/light/state")
        shutil.copytree("foreign/light/state", "state/light/state")
    with pytest.raises(HeadraceError, match=rf"^state file state/light/state/key_by%2f\d/\d+ .* {NAMED[how]}"):
        run()
    assert rows() == Counter(line for path in Path("kept-out").glob("part-*") for line in path.read_text().splitlines())


def test_an_older_checkpoint_is_not_taken_for_the_newest(prepared: Counter[str]) -> None:
    # The output is that of three files, the checkpoint that of two.
    shutil.rmtree("state")
    shutil.copytree("kept-state", "state")
    with pytest.raises(HeadraceError, match="new results would be dropped as already stored"):
        run()
    assert rows() == prepared


def test_a_refused_start_lets_go_of_the_checkpoint(prepared: Counter[str]) -> None:
    for name in ("state", "out"):
        shutil.rmtree(name)
        shutil.copytree(f"kept-{name}", name)
    stored = Path("state/light/checkpoint.json")
    content = stored.read_bytes()
    stored.write_bytes(content[:-20])
    with pytest.raises(CheckpointError, match="is damaged"):
        run()
    stored.write_bytes(content)
    run()
    assert rows() == prepared
