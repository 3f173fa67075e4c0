"""What a backend tells of a running job."""

from __future__ import annotations

from dataclasses import replace

from headrace.interfaces.backend import JobReport, JobState, JobStatus, QueueStatus


def test_the_end_of_a_queue_is_never_before_what_was_read_of_it() -> None:
    """Offset and end are asked for at different times: the end at the last look, the offset now."""
    read_on = QueueStatus("orders-0", offset=120, latest=100)
    assert (read_on.latest, read_on.lag) == (120, 0)
    assert replace(read_on, offset=130).latest == 130
    assert QueueStatus("orders-0", offset=100, latest=120).lag == 20
    assert QueueStatus("orders-0", offset=100).latest is None


def test_a_report_says_which_queues_were_set_aside() -> None:
    queues = (QueueStatus("in/a", 17, broken="no permission to read a"), QueueStatus("in/b", 5, records=5))
    report = JobReport.of(JobStatus("j", "light", JobState.FINISHED, records_read=5, queues=queues))
    assert [queue.queue for queue in report.broken_queues] == ["in/a"]
    assert "set aside: in/a at 17: no permission to read a" in str(report)


def test_a_run_with_nothing_but_broken_queues_is_told_from_one_without_input() -> None:
    broken = QueueStatus("in/a", 0, broken="damaged")
    status = JobStatus("j", "light", JobState.FINISHED, queues=(broken,))
    assert status.only_broken_queues
    assert not replace(status, queues=()).only_broken_queues
    assert not replace(status, queues=(broken, QueueStatus("in/b", 0))).only_broken_queues
    assert not replace(status, records_read=1).only_broken_queues
