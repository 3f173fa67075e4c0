"""What a backend tells of a running job."""

from __future__ import annotations

from dataclasses import replace

from headrace.backend import QueueStatus


def test_the_end_of_a_queue_is_never_before_what_was_read_of_it() -> None:
    """Offset and end are asked for at different times: the end at the last look, the offset now."""
    read_on = QueueStatus("orders-0", offset=120, latest=100)
    assert (read_on.latest, read_on.lag) == (120, 0)
    assert replace(read_on, offset=130).latest == 130
    assert QueueStatus("orders-0", offset=100, latest=120).lag == 20
    assert QueueStatus("orders-0", offset=100).latest is None
