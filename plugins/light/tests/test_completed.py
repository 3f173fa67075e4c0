"""A sink is told that all results of an input are stored when its server is there again: the job has done its work by then."""

from __future__ import annotations

import headrace as hr
from headrace.foundation.errors import RetriableError
from headrace.interfaces.output_definition import InputRead
from headrace.testing import MemorySink, MemorySource


class _AwayAtTheEnd(MemorySink):
    """Does not answer the first two times when it is told of the end."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[InputRead] = []
        self.asked = 0

    def completed(self, read: InputRead) -> None:
        self.asked += 1
        if self.asked <= 2:
            raise RetriableError("the server restarts", plugin="memory")
        self.told.append(read)


def test_a_server_that_restarts_at_the_end_of_the_input_is_waited_for() -> None:
    sink = _AwayAtTheEnd()
    records = [b'{"k": "a"}', b'{"k": "b"}', b'{"k": "a"}']
    events = hr.stream("test", "ends").from_(MemorySource({"q": records}), format="json", schema={"k": "string"})
    job = events.key_by("k").agg(n="count(*)").to(sink)
    report = job.run("light", until="end", show_progress=False)
    assert report.state.value == "finished"
    assert sink.asked == 3
    assert [read.records for read in sink.told] == [3]
