"""Damage to anything that a checkpoint of Spark stands on: the job goes on exactly, or says which file is damaged. Never a wrong row.

A start of Spark takes seconds. So a round is all that a start does before Spark's query runs, by the same functions, and then what its
planner and its workers load: where the next micro-batch begins, and the state of every shard. That must be what an
undamaged start loads, or be refused. A few rounds are starts as a whole, which show that this is what a start runs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from headrace.foundation.clock import SystemClock
from headrace.foundation.errors import CheckpointError, HeadraceError
from headrace.interfaces.backend import RunOptions
from headrace.plan.graph import Plan
from headrace.runtime.patience import Patience
from headrace.runtime.shard import Shard
from headrace_spark.checkpoints.checkpoint import SparkCheckpoint
from headrace_spark.checkpoints.offsets import JobIdentity
from headrace_spark.planning.planner import Planner
from headrace_spark.processes.session import SessionInUse, session_for
from headrace_spark.processes.settings import SparkSettings
from headrace_spark.queries import query
from headrace_spark.shards.shard_state import StateVersion
from headrace_spark.shards.topology import Topology
from headrace_spark.transit.payload import pickled, sources_of

from tests.conformance.damaged_jobs import DIRECTORIES, JOBS, DamagedJob, stopped
from tests.conformance.damaging import Files, chance, damage, files_in, job, lay, put_back, rounds, rows, same_states

pytestmark = pytest.mark.spark
#: Damage before starts as a whole. Without a number those among which one start is not refused.
WHOLE_STARTS = range(int(os.environ["DAMAGE_STARTS"])) if "DAMAGE_STARTS" in os.environ else range(6, 9)
#: Jobs with other kinds of state. A long run damages all; a state store of its own and a savepoint are the light backend's matter here.
VARIED = [each for each in JOBS if not each.options and not each.savepoint]
VARIED_TRIED = VARIED if "DAMAGE" in os.environ else [each for each in VARIED if each.name == "windows"]
SHARDS = 2


def run() -> None:
    job().run("spark", checkpoint="state", shards=SHARDS)


@dataclass(frozen=True)
class Loaded:
    """What a start goes on with: where the next micro-batch begins, where it ends if it is done again, and the shards' state."""

    batch_id: int
    begin: Any
    end: Any
    states: tuple[bytes, ...]

    def same(self, other: Loaded) -> bool:
        """Return whether both are the same, whatever order verbs keep their rows in."""
        return replace(self, states=()) == replace(other, states=()) and same_states(self.states, other.states)


class Start:
    """A start of the job without Spark's query."""

    def __init__(self, plan: Plan, in_use: SessionInUse) -> None:
        self._plan = plan
        self._in_use = in_use
        self._sources = pickled(sources_of(plan), plan.job_name)
        self._bytes = pickled(plan, plan.job_name)

    def load(self) -> Loaded:
        options = RunOptions(checkpoint="state")
        patience = Patience(self._plan.job_name, options.start_timeout, SystemClock())
        begin = query.Begin(JobIdentity.of(self._plan), self._sources, "end", patience)
        with contextlib.ExitStack() as cleanup:
            checkpoint = query.open_checkpoint(self._plan, options, self._in_use, cleanup)
            checkpoint.check()
            settings = SparkSettings(shards=SHARDS)
            found = query._gone_on_from(
                self._plan, self._bytes, options, settings, checkpoint, self._in_use, begin, None
            )
            return self._what_follows(checkpoint, found)

    def may_load(self) -> dict[int, Loaded]:
        """Return what a start may go on with, by micro-batch: behind the last one, or with that again where its commit is missing."""
        behind = self.load()
        commit = Path("state/spark/commits", str(behind.batch_id - 1))
        commit.unlink()
        again = self.load()
        assert again.batch_id == behind.batch_id - 1
        assert again.states != behind.states
        return {each.batch_id: each for each in (behind, again)}

    def _what_follows(self, checkpoint: SparkCheckpoint, found: query._Found) -> Loaded:
        """Do what Spark's query does first: it goes on behind the last planned micro-batch, or does that again."""
        planned = checkpoint.offsets()
        again = checkpoint.interrupted_batch()
        assert planned is not None
        assert found.keyed is not None
        if again is None:
            batch_id, begin, end = planned[0] + 1, planned[1], None
        else:
            begin, end = checkpoint._offsets_of(again - 1)[1], planned[1]
            batch_id = again
            Planner.check_follows(begin, end, self._plan.job_name)
        begin.check_belongs_to(found.identity)
        states = []
        for address in Topology(self._plan, SHARDS).addresses():
            shard = Shard(self._plan, address.shuffle, address.shard)
            for state, _ in found.keyed.chain(address).after(StateVersion(), batch_id):
                shard.apply(state)
            shard.end_restore()
            states.append(shard.snapshot())
            shard.close()
        return Loaded(batch_id, begin.to_json(), None if end is None else end.to_json(), tuple(states))


@dataclass
class World:
    """A checkpoint of two runs with its output, what comes of a third file, and what a start may load."""

    #: The working directory of its starts.
    place: Path
    files: Files
    #: Files of other runs and jobs that are put in its place.
    others: tuple[Files, ...]
    wanted: Counter[str]
    start: Start
    right: dict[int, Loaded]

    @classmethod
    def of(cls, made_of: DamagedJob) -> World:
        """Bring a job into the middle of its input in the working directory."""
        found = stopped(made_of, "spark", shards=SHARDS)
        found.put_back()
        start = Start(made_of.build(Path(".")).plan(RunOptions(checkpoint="state")), session_for(SparkSettings()))
        return cls(Path.cwd(), found.files, found.others, Counter(), start, start.may_load())

    @property
    def names(self) -> list[str]:
        return [name for name in self.files if name.startswith(("state/spark/", "state/shards/"))]

    def put_back(self) -> None:
        put_back(self.files, *DIRECTORIES)


@pytest.fixture(scope="module")
def made_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("damage"))
        lay(3)
        run()
        lay(4)
        run()
        foreign = files_in("state")
        for name in ("state", "out", "in"):
            shutil.rmtree(name)
        for number in (1, 2):
            lay(number)
            run()
        kept = files_in("state", "out")
        lay(3)
        run()
        wanted = rows()
        put_back(kept, "state", "out")
        start = Start(job().plan(RunOptions(checkpoint="state")), session_for(SparkSettings()))
        return World(Path.cwd(), kept, (foreign,), wanted, start, start.may_load())


@pytest.fixture(scope="module", params=VARIED_TRIED, ids=[each.name for each in VARIED_TRIED])
def made_varied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp(request.param.name))
        return World.of(request.param)


@pytest.fixture
def world(made_world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(made_world.place)
    return made_world


@pytest.fixture
def varied(made_varied: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(made_varied.place)
    return made_varied


def test_no_damage_loads_anything_wrong(world: World) -> None:
    no_damage_loads_anything_wrong(world, _rounds_of(0))


def test_no_damage_of_other_states_loads_anything_wrong(varied: World, request: pytest.FixtureRequest) -> None:
    at = [each.name for each in VARIED_TRIED].index(request.node.callspec.id)
    no_damage_loads_anything_wrong(varied, _rounds_of(1 + at))


def _rounds_of(job_number: int) -> Sequence[int]:
    jobs = 1 + len(VARIED_TRIED)
    return rounds(60 * jobs)[job_number::jobs]


def no_damage_loads_anything_wrong(world: World, numbers: Sequence[int]) -> None:
    refused: Counter[str] = Counter()
    for number in numbers:
        rng = chance(number)
        world.put_back()
        done = damage(rng, world.names, *world.others)
        try:
            loaded = world.start.load()
        except CheckpointError as error:
            refused["named"] += any(Path(name).name in str(error) for name in world.names)
            refused["all"] += 1
        else:
            right = world.right.get(loaded.batch_id)
            assert right is not None, f"round {number}: {done}: goes on with micro-batch {loaded.batch_id}"
            assert loaded.same(right), f"round {number}: {done}"
    # Shown by pytest -s, so that a long run tells what it has done.
    print(f"{len(numbers)} rounds, {refused['all']} refused", flush=True)
    assert refused["all"] > len(numbers) // 3
    assert refused["named"] > 0.9 * refused["all"]


def test_no_start_makes_a_wrong_row(world: World) -> None:
    finished: list[int] = []
    for number in WHOLE_STARTS:
        rng = chance(number, 2)
        world.put_back()
        done = damage(rng, world.names, *world.others)
        try:
            run()
        except HeadraceError:
            continue
        assert rows() == world.wanted, f"round {number}: {done}"
        finished.append(number)
    print(f"{len(WHOLE_STARTS)} starts, not refused: {finished}", flush=True)
    assert finished or "DAMAGE_STARTS" in os.environ, "every start was refused: no row was looked at"


@pytest.mark.parametrize(
    "name", ["spark/definitions.json", "spark/beginning.json", "spark/offsets/1", "spark/offsets/2", "spark/commits/2"]
)
def test_a_file_that_is_missing_or_of_another_job_is_named(world: World, name: str) -> None:
    path = Path("state", name)
    for content in (None, world.others[0][str(path)]):
        world.put_back()
        if content == world.files[str(path)]:
            continue  # Spark's commits are all alike
        path.unlink() if content is None else path.write_bytes(content)
        if name == "spark/commits/2":  # as if the last micro-batch had been broken off: it is done again
            assert world.start.load() == world.right[2]
            continue
        with pytest.raises(CheckpointError, match=path.name):
            world.start.load()


def test_an_older_checkpoint_is_refused(world: World) -> None:
    world.put_back()
    for name in ("offsets/2", "commits/2"):
        Path("state/spark", name).unlink()
    with pytest.raises(CheckpointError, match="new results would be dropped as already stored"):
        world.start.load()


def test_state_of_another_checkpoint_under_the_same_name_is_refused(world: World) -> None:
    world.put_back()
    for name, content in world.others[0].items():
        if name.startswith("state/shards/"):
            Path(name).write_bytes(content)
    with pytest.raises(CheckpointError, match="or of another job"):
        world.start.load()
