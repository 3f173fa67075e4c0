"""The stages of a job without keyed verbs."""

from __future__ import annotations

from headrace.flow.messages import Queue, ReadPosition
from headrace_light.checkpoint_directory import StoredCheckpoint
from headrace_light.stages.none import NoStages
from stages_world import at_once

QUEUE = Queue("q", "events")


def test_a_checkpoint_has_positions_only() -> None:
    stages = NoStages()
    stages.add_queue(QUEUE, ())
    stages.log_read(QUEUE, ReadPosition(0), ReadPosition(5))
    stages.take(())
    stages.remove_queue(QUEUE, ())
    assert not stages.in_checkpoint
    assert not stages.changed
    assert (stages.sequence, stages.shard_counts) == (None, {})
    assert stages.flush()
    assert stages.save(1, ()) is None


def test_nothing_is_done_again_and_no_sink_is_asked() -> None:
    stages = NoStages()
    assert list(stages.replay(StoredCheckpoint(id=3), at_once)) == []
    assert not stages.stand_behind_sinks(write=False, wait_for=at_once)


def test_it_has_no_work_and_nobody_to_tell() -> None:
    stages = NoStages()
    assert not stages.poll()
    assert not stages.skip_idle(QUEUE)
    assert not stages.at_end
    stages.end_input()
    assert not stages.at_end
    assert (stages.watermark_us(), stages.state_rows(), stages.late_rows(), stages.statuses()) == (None, 0, 0, ())
