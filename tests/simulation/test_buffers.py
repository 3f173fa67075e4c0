"""What a buffer on disk promises holds wherever the process is killed and the power fails."""

from __future__ import annotations

import pytest

from tests.effort import examples, one_in
from tests.simulation.buffers import BufferHistory, buffer_history_of, run_buffer
from tests.simulation.histories import Fault
from tests.simulation.mutations import MUTATIONS


def test_histories_of_buffers_break_no_rule() -> None:
    for seed in range(examples(60)):
        outcome = run_buffer(buffer_history_of(seed))
        assert not outcome.wrong, (
            f"{outcome.history}\npython -m tests.simulation replay {seed} --buffers\n" + "\n".join(outcome.wrong)
        )


@pytest.mark.parametrize("sync", range(3, 12))
def test_what_a_killed_process_has_written_is_durable_before_it_is_read(sync: int) -> None:
    """A segment without a durable name, or a block without a sync, was read and appended to, and gone when the power failed."""
    for count in one_in(2, (4, 6, 8, 10, 12), begin=sync % 2):
        faults = (Fault("kill", "sync", sync), Fault("power", None, count))
        outcome = run_buffer(
            BufferHistory(100 * sync + count, (((10,), (10,), (10,)),), faults, trims=False, preempt=0.0)
        )
        assert not outcome.wrong, (count, outcome.wrong)


def test_a_segment_that_could_not_be_begun_takes_no_record_with_it() -> None:
    """Smaller records went on behind the last segment then, and were lost at the next start: it looked for them in the new file."""
    history = buffer_history_of(339)
    with MUTATIONS["buffer: records behind a segment that was begun"]():
        assert run_buffer(history).wrong
    outcome = run_buffer(history)
    assert not outcome.wrong, outcome.wrong
