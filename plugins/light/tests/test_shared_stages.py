"""Keyed stages that instances share, without engines: every call is one step of one instance."""

from __future__ import annotations

import pytest
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.state_store import StateStore
from headrace_light.checkpoint_directory import StoredCheckpoint
from headrace_light.shared.elasticity import Elasticity
from headrace_light.shared.stages import SharedStages
from headrace_light.shared.transport import topic_name
from headrace_light.stages.interface import Stages
from headrace_light.state_directory import NoStateStore
from shared_world import SHARDS, SharedWorld, settle
from stages_world import at_once

ALL = [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1)]


def checkpointed(world: SharedWorld, stages: Stages) -> bool:
    """Flush the sinks, then what a checkpoint stores of the stages; return whether it could be made."""
    world.parts.rows()
    return stages.flush()


def test_rows_go_by_the_topic_to_the_shards_and_then_to_the_sink() -> None:
    world = SharedWorld()
    with world.instance() as stages:
        stages.add_queue(world.queue, world.parts.begin(world.queue))
        world.parts.read(stages, world.queue, 0, 6)
        settle(stages)
        assert world.parts.rows() == ALL
        assert stages.state_rows() == 3
        assert len(stages.statuses()) == SHARDS
        assert stages.sequence is None, "positions in the topics are the brokers', not the checkpoint's"
        assert stages.shard_counts == {}


def test_a_second_instance_takes_over_what_the_first_has_stored() -> None:
    world = SharedWorld()
    with world.instance() as first:
        first.add_queue(world.queue, world.parts.begin(world.queue))
        world.parts.read(first, world.queue, 0, 4)
        settle(first)
        assert first.changed
        assert checkpointed(world, first)
        assert not first.changed
        first.leave()
    with world.instance() as second:
        assert second.state_rows() == 3
        world.parts.begin(world.queue)
        world.parts.read(second, world.queue, 4, 2)
        settle(second)
        assert world.parts.rows() == ALL


def test_shards_that_are_asked_back_are_checkpointed_first_and_those_that_are_lost_are_not() -> None:
    world = SharedWorld()
    with world.instance() as first:
        assert len(first.statuses()) == SHARDS
        with world.instance() as second:
            first.keep_up(idle=True)
            assert world.parts.checkpoints == 1
            second.keep_up(idle=True)
            assert (len(first.statuses()), len(second.statuses())) == (1, 1)
            world.broker.expel_members(topic_name(world.parts.plan.job_name, world.shuffle), _group(world))
            first.keep_up(idle=True)
            assert world.parts.checkpoints == 1


def _group(world: SharedWorld) -> str:
    return topic_name(world.parts.plan.job_name, world.shuffle)


def test_an_outage_of_the_broker_lets_no_checkpoint_be_made_and_loses_nothing() -> None:
    world = SharedWorld()
    with world.instance() as stages:
        stages.add_queue(world.queue, world.parts.begin(world.queue))
        world.parts.read(stages, world.queue, 0, 6)
        world.broker.begin_outage()
        assert not stages.flush()
        world.broker.end_outage()
        settle(stages)
        assert checkpointed(world, stages)
        assert world.parts.rows() == ALL


def test_a_shard_without_the_state_that_its_group_has_come_to_is_refused() -> None:
    world = SharedWorld()
    with world.instance() as first:
        first.add_queue(world.queue, world.parts.begin(world.queue))
        world.parts.read(first, world.queue, 0, 6)
        settle(first)
        assert checkpointed(world, first)
        first.leave()

    def forgetful(*arguments: object) -> StateStore:
        return NoStateStore()

    elasticity = Elasticity(world.elasticity().topics, forgetful, state_moves=True)
    stages = SharedStages.of(world.parts.plan, world.parts.host(), StoredCheckpoint(), elasticity, shards=SHARDS)
    stages.open()
    stages.join(at_once)
    with pytest.raises(CheckpointError, match="its state is stored nowhere"):
        stages.keep_up(idle=True)
    stages.close()


def test_state_that_does_not_move_begins_anew_on_another_machine() -> None:
    world = SharedWorld()
    with world.instance() as first:
        first.add_queue(world.queue, world.parts.begin(world.queue))
        world.parts.read(first, world.queue, 0, 4)
        settle(first)
        assert checkpointed(world, first)
        first.leave()
    elasticity = Elasticity(world.elasticity().topics, lambda *arguments: NoStateStore(), state_moves=False)
    stages = SharedStages.of(world.parts.plan, world.parts.host(), StoredCheckpoint(), elasticity, shards=SHARDS)
    stages.open()
    stages.join(at_once)
    stages.keep_up(idle=True)
    assert (len(stages.statuses()), stages.state_rows()) == (SHARDS, 0)
    stages.close()


def test_savepoints_are_refused() -> None:
    world = SharedWorld()
    with world.instance() as stages:
        with pytest.raises(CheckpointError, match="cannot take savepoints or start from them"):
            stages.check_savepoint()
        with pytest.raises(CheckpointError, match="cannot take savepoints or start from them"):
            stages.begin_at((), 1, 7, at_once)
