"""Keyed stages whose shards are all in this process, without an engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from headrace.flow.messages import Position, Queue
from headrace.foundation.errors import CheckpointError
from headrace.jobs.keyed import shuffled
from headrace.runtime.kept_versions import forget_versions, keep_versions
from headrace.runtime.shard import Shard
from headrace.testing import MemorySource
from headrace_light.checkpoint_directory import StoredCheckpoint
from headrace_light.stages.loaded_ahead import LoadedAhead
from headrace_light.stages.local import LocalStages
from headrace_light.stages.order_log import Entry, OrderLog
from headrace_light.state_directory import DirectoryStateSettings, DirectoryStateStore
from light_counting import Count
from stages_world import BEGIN_SECONDS, StagesWorld, at_once, bodies

QUEUE = Queue("q", "events")
KEYS = ["a", "b", "a", "c", "a", "b"]


def world(directory: Path | None = None) -> StagesWorld:
    return StagesWorld(MemorySource({"q": bodies(KEYS)}), directory)


def local(
    made: StagesWorld,
    checkpoint: StoredCheckpoint | None = None,
    *,
    shards: int = 2,
    ahead: LoadedAhead | None = None,
) -> LocalStages:
    def store(directory: Path) -> DirectoryStateStore:
        return DirectoryStateStore(DirectoryStateSettings(path=str(directory / "state")))

    stored = checkpoint or StoredCheckpoint()
    return LocalStages.of(made.plan, made.host(), stored, shards=shards, make_store=store, ahead=ahead)


def begun(made: StagesWorld) -> LocalStages:
    stages = local(made)
    assert list(stages.replay(StoredCheckpoint(), at_once)) == []
    stages.add_queue(QUEUE, made.begin(QUEUE))
    return stages


def test_rows_come_out_at_once_and_entries_are_numbered_from_the_clock() -> None:
    made = world()
    stages = begun(made)
    first = int(BEGIN_SECONDS * 1_000_000)
    assert stages.sequence == first + 1
    made.read(stages, QUEUE, 0, 4)
    assert stages.sequence == first + 2
    assert made.rows() == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]
    assert stages.state_rows() == 3
    stages.close()


def test_entries_are_done_again_under_their_numbers_in_their_order(tmp_path: Path) -> None:
    made = world(tmp_path)
    stages = begun(made)
    made.read(stages, QUEUE, 0, 4)
    stages.tick()
    made.read(stages, QUEUE, 4, 2)
    stages.skip_idle(QUEUE)
    stages.wait_again(QUEUE)
    rows, sequence = made.rows(), stages.sequence
    stages.close()  # as a kill leaves it: no checkpoint, a log

    made.clock.advance(1_000)  # what is done again is not numbered from the clock
    again = local(made)
    kinds = []
    for entry in again.replay(StoredCheckpoint(), at_once):
        kinds.append(entry.kind)
        if entry.kind == "added":
            again.add_queue(QUEUE, made.begin(QUEUE))
        elif entry.kind == "read":
            start, end = entry.range
            made.read(again, entry.of_queue, start.offset, end.offset - start.offset)
        elif entry.kind == "tick":
            again.tick()
        elif entry.kind == "awake":
            again.wait_again(entry.of_queue)
        else:
            again.skip_idle(entry.of_queue)
        assert again.sequence == entry.sequence
    assert kinds == ["added", "read", "tick", "read", "idle", "awake"]
    assert again.sequence == sequence
    assert made.rows() == rows, "the sink has dropped what it had"
    again.tick()
    assert again.sequence == sequence + 1, "what comes behind the replay is a new entry"
    again.close()


def test_a_checkpoint_brings_back_the_state_and_begins_a_new_log(tmp_path: Path) -> None:
    made = world(tmp_path)
    stages = begun(made)
    made.read(stages, QUEUE, 0, 4)
    states = stages.save(1, ())
    stages.saved(1)
    stored = StoredCheckpoint(1, {}, stages.sequence, stages.shard_counts, made.plan.state_definitions, states=states)
    stages.close()
    again = local(made, stored)
    assert list(again.replay(stored, at_once)) == []
    assert (again.state_rows(), again.sequence) == (3, stored.sequence)
    made.begin(QUEUE)
    made.read(again, QUEUE, 4, 2)
    assert ("a", 3) in made.rows()
    again.close()
    with pytest.raises(CheckpointError, match="keys cannot move between shards"):
        local(made, stored, shards=3)


def test_the_log_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    made = world(tmp_path)
    stages = begun(made)
    made.read(stages, QUEUE, 0, 4)
    stages.close()
    other = StoredCheckpoint(0, sequence=7)
    again = local(made)
    with pytest.raises(CheckpointError, match="it belongs to another checkpoint, or a part of it is missing"):
        list(again.replay(other, at_once))
    again.close()


def test_the_end_of_input_is_told_once_until_something_comes() -> None:
    made = world()
    stages = begun(made)
    made.read(stages, QUEUE, 0, 4)
    stages.end_input()
    sequence, rows = stages.sequence, made.rows()
    assert stages.at_end
    stages.end_input()
    assert (stages.sequence, made.rows()) == (sequence, rows)
    made.read(stages, QUEUE, 4, 2)
    assert not stages.at_end
    stages.end_input()
    assert stages.sequence == sequence + 2
    stages.close()


def test_what_came_behind_an_end_is_closed_after_a_crash_too(tmp_path: Path) -> None:
    """A run ends, the next one reads more and is killed before it ends: the third has nothing to read, and tells the end."""
    made = world(tmp_path)
    stages = begun(made)
    made.read(stages, QUEUE, 0, 4)
    stages.end_input()
    made.read(stages, QUEUE, 4, 2)
    stages.close()
    again = local(made)
    for entry in again.replay(StoredCheckpoint(), at_once):
        if entry.kind == "added":
            again.add_queue(QUEUE, made.begin(QUEUE))
        elif entry.kind == "end":
            again.end_input()
        else:
            start, end = entry.range
            made.read(again, QUEUE, start.offset, end.offset - start.offset)
    assert not again.at_end
    before = made.rows()
    again.end_input()
    assert [row for row in made.rows() if row not in before or row[1] == -1].count(("a", -1)) == 2
    again.close()


def test_a_job_that_begins_goes_on_behind_what_sinks_have_and_one_that_goes_on_refuses(tmp_path: Path) -> None:
    made = world(tmp_path)
    ahead = int(BEGIN_SECONDS * 1_000_000) + 3_600_000_000
    [shuffle] = made.plan.shuffles
    made.sink.stored[Queue("0", shuffle)] = Position(ahead, 0)
    stages = begun(made)
    assert not stages.stand_behind_sinks(write=False, wait_for=at_once)
    assert stages.sequence == ahead
    stages.close()

    goes_on = StoredCheckpoint(1, {}, 7, stages.shard_counts, made.plan.state_definitions)
    refused = local(made)
    refused.save(1, ())
    assert list(refused.replay(goes_on, at_once)) == []
    with pytest.raises(CheckpointError, match="new results would be dropped as already stored"):
        refused.stand_behind_sinks(write=False, wait_for=at_once)
    assert refused.stand_behind_sinks(write=True, wait_for=at_once), "a checkpoint says that it was chosen"
    assert refused.sequence == ahead
    refused.close()


def test_ticks_come_as_often_as_operators_ask() -> None:
    class Ticking(Count):
        tick_seconds = 5.0

    made = StagesWorld(MemorySource({"q": bodies(KEYS)}), build=lambda rows: shuffled(rows, ("k",)).apply(Ticking("k")))
    stages = begun(made)
    first = stages.sequence
    for seconds, ticks in [(4.9, 0), (0.2, 1), (0.2, 1), (5.0, 2)]:
        made.clock.advance(seconds)
        stages.keep_up(idle=True)
        assert stages.sequence == first + ticks
    stages.close()


def test_a_job_whose_operators_ask_for_no_clock_has_no_ticks() -> None:
    made = world()
    stages = begun(made)
    before = stages.sequence
    made.clock.advance(3600)
    stages.keep_up(idle=True)
    assert stages.sequence == before
    stages.close()


def stored_by(made: StagesWorld, stages: LocalStages, number: int, *, last: bool = False) -> StoredCheckpoint:
    """Make a checkpoint of the stages alone."""
    states = stages.save(number, (), last=last)
    stages.saved(number)
    return StoredCheckpoint(
        number, {}, stages.sequence, stages.shard_counts, made.plan.state_definitions, states=states
    )


def loaded_ahead(made: StagesWorld, *checkpoints: StoredCheckpoint) -> LoadedAhead:
    assert made.directory is not None
    store = DirectoryStateStore(DirectoryStateSettings(path=str(made.directory / "state")))
    ahead = LoadedAhead(made.plan, {name: 2 for name in made.plan.shuffles}, store)
    for each in checkpoints:
        ahead.load(each)
    return ahead


@pytest.mark.parametrize("looks", [1, 2])
def test_state_that_was_loaded_ahead_needs_only_what_came_since(
    tmp_path: Path, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world(tmp_path)
    stages = begun(made)
    made.read(stages, QUEUE, 0, 3)
    first = stored_by(made, stages, 1)
    ahead = loaded_ahead(made, first)
    made.read(stages, QUEUE, 3, 1)
    second = stored_by(made, stages, 2)
    if looks == 2:
        ahead.load(second)
    made.read(stages, QUEUE, 4, 1)
    third = stored_by(made, stages, 3, last=True)
    # A version of a checkpoint that was never finished, by a process that was killed.
    left = DirectoryStateStore(DirectoryStateSettings(path=str(tmp_path / "state")))
    name = next(each.queue.id for each in stages._all() if each.state_rows())
    left.save(name, 4, b"of an unfinished checkpoint")
    stages.close()

    monkeypatch.setattr(DirectoryStateStore, "load", None)  # nothing is loaded as a whole
    again = local(made, third, ahead=ahead)
    assert list(again.replay(third, at_once)) == []
    assert (again.state_rows(), again.sequence) == (3, third.sequence)
    assert left.stored(name, 4) is None
    made.begin(QUEUE)
    made.read(again, QUEUE, 5, 1)
    assert [row for row in made.rows() if row[0] == "b"] == [("b", 1), ("b", 2)]
    fourth = stored_by(made, again, 4)
    again.close()
    monkeypatch.undo()
    whole = local(made, fourth)
    assert list(whole.replay(fourth, at_once)) == []
    assert whole.state_rows() == 3
    whole.close()


def test_state_of_another_checkpoint_that_was_loaded_ahead_is_not_used(tmp_path: Path) -> None:
    made = world(tmp_path)
    stages = begun(made)
    made.read(stages, QUEUE, 0, 3)
    first = stored_by(made, stages, 1)
    ahead = loaded_ahead(made, first)
    stages.close()
    shutil.rmtree(tmp_path / "state")
    again = begun(made)  # as after a reset: the numbers of the checkpoints begin anew
    made.read(again, QUEUE, 3, 1)
    other = stored_by(made, again, 1)
    again.close()
    third = local(made, other, ahead=ahead)
    assert list(third.replay(other, at_once)) == []
    assert third.state_rows() == 1
    third.close()


def test_what_an_operator_does_not_understand_is_not_loaded_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world(tmp_path)
    stages = begun(made)
    made.read(stages, QUEUE, 0, 4)
    stored = stored_by(made, stages, 1)
    stages.close()
    first: list[int] = []
    apply = Shard.apply

    def other_format(shard: Shard, state: bytes) -> None:
        if not first:
            first.append(shard.number)
            raise ValueError("no JSON")
        apply(shard, state)

    monkeypatch.setattr(Shard, "apply", other_format)
    ahead = loaded_ahead(made, stored)
    assert first
    states = stored.states or {}
    found = {number: ahead.take(f"key_by/{number}", states[f"key_by/{number}"]) for number in range(2)}
    assert {number for number, each in found.items() if each is None} == set(first)


def test_nothing_damaged_is_loaded_ahead_and_the_start_says_what_is_damaged(tmp_path: Path) -> None:
    made = world(tmp_path)
    stages = begun(made)
    made.read(stages, QUEUE, 0, 4)
    stored = stored_by(made, stages, 1)
    stages.close()
    for each in (tmp_path / "state").rglob("*.delta"):
        each.write_bytes(each.read_bytes()[:-1] + b"?")
    again = local(made, stored, ahead=loaded_ahead(made, stored))
    with pytest.raises(CheckpointError, match="its checksum does not match"):
        list(again.replay(stored, at_once))
    again.close()


def test_the_last_version_of_a_job_that_stops_is_a_change_and_the_next_start_makes_the_snapshot_that_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_light.stages.shard_storage._DELTAS_MAX", 1)
    made = world(tmp_path)
    stages = begun(made)
    for offset in range(3):
        made.read(stages, QUEUE, offset, 1)
        stored = stored_by(made, stages, offset + 1, last=offset == 2)
    stages.close()
    kinds = {each.name[18:] for each in (tmp_path / "state").rglob("*.*")}
    assert "03.delta" in kinds
    assert "03.snapshot" not in kinds
    again = local(made, stored, ahead=loaded_ahead(made, stored))
    assert list(again.replay(stored, at_once)) == []
    made.begin(QUEUE)
    made.read(again, QUEUE, 3, 2)
    stored_by(made, again, 4)  # it has just taken over: its output does not wait for a snapshot
    made.read(again, QUEUE, 5, 1)
    stored_by(made, again, 5)
    again.close()
    kinds = {each.name[18:] for each in (tmp_path / "state").rglob("*.*")}
    assert "04.snapshot" not in kinds
    assert "05.snapshot" in {each.name[18:] for each in (tmp_path / "state").rglob("*.*")}


def test_a_job_that_is_stopped_again_and_again_makes_a_snapshot_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_light.stages.shard_storage._DELTAS_MAX", 1)
    monkeypatch.setattr("headrace_light.stages.shard_storage._PUT_OFF_MAX", 3)
    made = world(tmp_path)
    stages = begun(made)
    made.read(stages, QUEUE, 0, 1)
    stored = stored_by(made, stages, 1, last=True)
    for number in range(2, 7):
        stages.close()
        stages = local(made, stored, ahead=loaded_ahead(made, stored) if number % 2 else None)
        assert list(stages.replay(stored, at_once)) == []
        made.begin(QUEUE)
        made.read(stages, QUEUE, number - 1, 1)
        stored = stored_by(made, stages, number, last=True)
    rows = stages.state_rows()
    stages.close()
    kinds = [each.name[18:] for each in sorted((tmp_path / "state" / "key_by%2f1").iterdir())]
    assert "snapshot" in kinds[0]
    assert len(kinds) < 5
    again = local(made, stored)
    assert list(again.replay(stored, at_once)) == []
    assert again.state_rows() == rows
    again.close()


def test_no_version_is_forgotten_while_somebody_may_go_back_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_light.stages.shard_storage._DELTAS_MAX", 1)
    (tmp_path / "light").mkdir()
    made = world(tmp_path / "light")
    stages = begun(made)
    made.read(stages, QUEUE, 0, 1)
    first = stored_by(made, stages, 1)
    keep_versions(tmp_path)
    for offset in range(1, 5):
        made.read(stages, QUEUE, offset, 1)
        stored_by(made, stages, offset + 1)
    # Nor does a snapshot replace what another process may have loaded ahead.
    assert not list((tmp_path / "light" / "state").rglob("*.snapshot"))
    stages.close()
    again = local(made, first)
    assert list(again.replay(first, at_once)) == []
    assert again.state_rows() == 1
    made.begin(QUEUE)
    forget_versions(tmp_path)
    for offset in range(1, 5):
        made.read(again, QUEUE, offset, 1)
        stored_by(made, again, offset + 1)
    again.close()
    kinds = [each.suffix for each in sorted((tmp_path / "light" / "state").rglob("*.*"))]
    assert kinds[0] == ".snapshot"


def test_entries_behind_a_checkpoint_that_is_on_its_way_are_repeated(tmp_path: Path) -> None:
    log = OrderLog(tmp_path)
    log.begin(1)
    entries = [Entry(number, 0, "tick") for number in range(10, 16)]
    log.add(entries[0])
    log.add(entries[1])
    log.begin_next(2)
    log.add(entries[2])
    log.close()
    again = OrderLog(tmp_path)  # the process was killed before the checkpoint counted
    assert list(again.entries(1, after=9)) == entries[:3]
    assert list(again.entries(2, after=11)) == entries[2:3]  # and after that
    again.begin(1)
    again.add(entries[3])
    again.begin_next(2)
    again.add(entries[4])
    again.close()
    assert list(again.entries(1, after=9)) == entries[:5]
    assert list(again.entries(2, after=13)) == entries[4:5]
    again.begin(2)
    again.add(entries[5])
    again.close()
    assert [path.name for path in tmp_path.iterdir()] == ["order-2.log"]
    assert list(again.entries(2, after=13)) == entries[4:]


def test_a_gap_between_two_logs_is_damage(tmp_path: Path) -> None:
    log = OrderLog(tmp_path)
    log.begin(1)
    log.add(Entry(10, 0, "tick"))
    log.begin_next(2)
    log.add(Entry(12, 0, "tick"))
    log.close()
    with pytest.raises(CheckpointError, match="entry 11 is missing"):
        list(log.entries(1, after=9))


def test_entries_that_are_numbered_anew_may_follow_those_that_are_in_the_checkpoint(tmp_path: Path) -> None:
    """The power failed while a checkpoint was stored, whose log was begun; the next start stored one of this number and numbers anew."""
    log = OrderLog(tmp_path)
    log.begin(1)
    log.add(Entry(10, 0, "tick"))
    log.begin_next(2)
    log.add(Entry(11, 0, "tick"))
    log.begin(2)
    log.add(Entry(5_001, 0, "tick"))
    log.close()
    assert list(log.entries(2, after=5_000)) == [Entry(5_001, 0, "tick")]
    with pytest.raises(CheckpointError, match="entry 12 is missing"):
        list(log.entries(2, after=11))
