"""The topics of shuffles: what is sent, to which shards, and when it is there."""

from __future__ import annotations

import pytest
from headrace.flow.messages import Queue
from headrace.foundation.errors import JobFailedError, RetriableError
from headrace.runtime.shard import Shard
from headrace_light.shared.shuffle_records import decoded
from shared_world import SHARDS, SharedWorld


def kinds(world: SharedWorld, shard: int) -> list[tuple[str, str]]:
    found = [envelope for body in world.records(shard) for envelope in decoded(body)[1]]
    return [(each.kind, each.queue.id) for each in found]


def test_every_shard_is_told_once_of_every_queue() -> None:
    world = SharedWorld()
    transport = world.transport()
    transport.announce(())
    transport.announce(())
    assert transport.unflushed
    assert kinds(world, 0) == [], "nothing is there before it is flushed"
    assert transport.flush()
    assert not transport.unflushed
    for shard in range(SHARDS):
        assert kinds(world, shard) == [("added", world.queue.id)]
    world.broker.add_queue("events")
    transport.announce(())
    transport.flush()
    for shard in range(SHARDS):
        assert len(kinds(world, shard)) == 2
    transport.close()


def test_a_shard_is_told_of_queues_that_are_gone() -> None:
    world = SharedWorld()
    transport = world.transport()
    shard = Shard(world.parts.plan, world.shuffle, 1)
    shard.expect([(world.queue, 0), (Queue("gone", "events"), 0)])
    transport.announce([shard])
    transport.flush()
    assert kinds(world, 1) == [("added", world.queue.id), ("removed", Queue("gone", "events").id)]
    assert kinds(world, 0) == [("added", world.queue.id)]
    transport.close()


def test_all_shards_are_told_not_to_wait_for_a_queue_and_those_that_are_named_of_the_time() -> None:
    world = SharedWorld()
    transport = world.transport()
    transport.tell_idle(world.queue)
    transport.tell_time([Shard(world.parts.plan, world.shuffle, 1)])
    transport.flush()
    assert kinds(world, 0) == [("idle", world.queue.id)]
    assert kinds(world, 1) == [("idle", world.queue.id)]
    time_us, envelopes = decoded(world.records(1)[-1])
    assert (time_us, list(envelopes)) == (int(world.parts.clock.now() * 1_000_000), [])
    transport.close()


def test_what_waits_is_flushed_when_idle_or_after_a_while() -> None:
    world = SharedWorld()
    transport = world.transport()
    transport.tell_idle(world.queue)
    transport.flush_when_due(idle=False)
    assert transport.unflushed
    world.parts.clock.advance(0.05)
    transport.flush_when_due(idle=False)
    assert not transport.unflushed
    transport.tell_idle(world.queue)
    transport.flush_when_due(idle=True)
    assert not transport.unflushed
    transport.close()


def test_a_broker_that_is_away_is_waited_for_and_then_ends_the_job() -> None:
    world = SharedWorld()
    transport = world.transport()
    transport.tell_idle(world.queue)
    world.broker.begin_outage()
    with pytest.raises(RetriableError):
        transport.flush_now()
    assert not transport.flush()
    world.parts.clock.advance(0.5)
    assert not transport.flush()
    world.broker.end_outage()
    assert transport.flush()
    transport.tell_idle(world.queue)
    world.broker.begin_outage()
    assert not transport.flush()
    world.parts.clock.advance(1.1)
    with pytest.raises(JobFailedError, match="it was not possible to send to a shuffle"):
        transport.flush()
    world.broker.end_outage()
    transport.close()
