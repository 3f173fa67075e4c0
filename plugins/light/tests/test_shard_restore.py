"""How a shard that instances share begins, and how its state is stored; and which shards an instance has."""

from __future__ import annotations

from datetime import timedelta

import pytest
from headrace.flow.messages import Queue
from headrace.foundation.errors import JobFailedError, RetriableError
from headrace.interfaces.source import EARLIEST
from headrace_light.shared.membership import ShardMembership
from headrace_light.shared.restore import ShardRestore
from headrace_light.shared.shard_run import ShardRun
from headrace_light.shared.transport import Transport
from shared_world import SharedWorld
from stages_world import at_once


class Parts:
    """Transport, restore and membership of one instance."""

    def __init__(self, world: SharedWorld) -> None:
        self.world = world
        self.transport: Transport = world.transport()
        elasticity = world.elasticity()
        clock, outages = world.parts.clock, world.outages()
        self.restore = ShardRestore(
            world.parts.plan, clock, elasticity, self.transport, outages, directory=None, sinks=dict
        )
        self.restore.open()
        self.gone: list[Queue] = []
        self.checkpoints = 0
        self.members = ShardMembership(
            "test.stages", clock, self.transport, self.restore, outages,
            retry_seconds=1.0, make_checkpoint=self._checkpoint, discard=self.gone.append,
        )  # fmt: skip
        self.members.open()
        self.members.join(at_once)

    def _checkpoint(self) -> None:
        self.checkpoints += 1

    def ship_all(self) -> None:
        """Send all records of the source to the shards."""
        self.transport.announce(())
        self.transport.ship(self.world.parts.begin(self.world.queue))
        lane = self.world.parts.lanes[self.world.queue]
        reader = self.world.parts.plan.sources["events"].source.open(self.world.queue, EARLIEST)
        raw = reader.poll(100, timedelta(0))
        reader.close()
        assert raw is not None
        lane.process(raw)
        self.transport.ship(lane.take_shipments())
        self.transport.flush_now()

    def worked(self) -> list[ShardRun]:
        """Let the shards take what is there; return those that have state."""
        self.members.poll()
        for run in self.members.runs:
            while run.poll() is not None:
                pass
        return [run for run in self.members.runs if run.shard.state_rows()]

    def close(self) -> None:
        self.members.leave()
        self.members.close()
        self.restore.close()
        self.transport.close()


def test_a_shard_begins_where_its_state_was_stored() -> None:
    world = SharedWorld()
    first = Parts(world)
    first.ship_all()
    runs = first.worked()
    assert runs
    rows = {run.shard.number: run.shard.state_rows() for run in runs}
    ends = {run.shard.number: run.position for run in runs}
    for run in runs:
        assert first.restore.to_store(run)
        first.restore.store(run)
        assert not first.restore.to_store(run)
    first.members.commit()
    first.close()
    second = Parts(world)
    second.members.poll()
    found = {run.shard.number: run for run in second.members.runs if run.shard.number in rows}
    assert {number: run.shard.state_rows() for number, run in found.items()} == rows
    assert {number: run.position for number, run in found.items()} == ends
    second.close()


def test_state_is_stored_whole_after_the_store_was_away() -> None:
    world = SharedWorld()
    parts = Parts(world)
    parts.ship_all()
    [run, *_] = parts.worked()
    parts.restore.store(run)
    assert not run.whole
    parts.transport.tell_time([run.shard])
    parts.transport.flush_now()
    run.poll()
    world.broker.begin_outage()
    with pytest.raises(RetriableError):
        parts.restore.store(run)
    assert run.whole, "what had changed was taken out of the shard"
    world.broker.end_outage()
    parts.restore.store(run)
    assert not parts.restore.to_store(run)
    parts.close()


def test_an_old_snapshot_is_stored_anew_though_nothing_comes() -> None:
    world = SharedWorld()
    parts = Parts(world)
    parts.ship_all()
    [run, *_] = parts.worked()
    parts.restore.store(run)
    world.parts.clock.advance(5 * 3600.0)
    assert not parts.restore.to_store(run)
    world.parts.clock.advance(1 * 3600.0)
    assert parts.restore.to_store(run)
    parts.close()


def test_a_shard_whose_state_is_not_certain_begins_again_from_what_is_stored() -> None:
    world = SharedWorld()
    parts = Parts(world)
    parts.ship_all()
    [run, *_] = parts.worked()
    end = run.position
    parts.members.begin_again(run)
    assert not parts.members.has(run)
    assert parts.gone == [run.shard.queue], "rows that wait in the sinks come again"
    parts.members.begin_again(run)
    assert len(parts.gone) == 1, "it has gone already"
    parts.members.begin_waiting()
    [anew] = [each for each in parts.members.runs if each.topic_queue == run.topic_queue]
    assert anew.position.offset == 0
    while anew.poll() is not None:
        pass
    assert anew.position == end
    parts.close()


def test_shards_that_are_taken_are_checkpointed_unless_they_are_lost() -> None:
    world = SharedWorld()
    parts = Parts(world)
    parts.members.poll()
    [one, other] = parts.members.runs
    parts.members.revoked([one.topic_queue], lost=False)
    assert parts.checkpoints == 1
    parts.members.revoked([other.topic_queue], lost=True)
    assert parts.checkpoints == 1
    assert parts.members.runs == []
    assert parts.gone == [one.shard.queue, other.shard.queue]
    parts.close()


def test_what_is_not_possible_is_tried_up_to_a_limit() -> None:
    world = SharedWorld()
    outages = world.outages()

    def away() -> int:
        raise RetriableError("no answer")

    assert outages.trying("ask", away) is None
    world.parts.clock.advance(0.9)
    assert outages.trying("ask", away) is None
    assert outages.trying("ask", lambda: 7) == 7
    world.parts.clock.advance(0.9)
    assert outages.trying("ask", away) is None, "the time is counted anew"
    world.parts.clock.advance(1.0)
    with pytest.raises(JobFailedError, match="for 1 s it was not possible to ask: no answer"):
        outages.trying("ask", away)
