"""How the source stage of a job hands ranges over to the sink stage, which reads them in the same task.

Spark runs the two in separate processes. The first one imports nothing that takes much memory.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence

from headrace.flow.messages import Queue

from headrace_spark.transit.envelopes import Envelope
from headrace_spark.transit.payload import unpickled
from headrace_spark.transit.ranges import QueueRange


def carried(ranges: Sequence[QueueRange]) -> Envelope:
    """Return an envelope with the ranges of a task, for a later step of it; ``ranges_in`` reads it.

    It is pickled as Spark has pickled the same ranges to bring them to the task.
    """
    return Envelope("ranges", Queue("", ""), 0, 0, len(ranges), payload=pickle.dumps(list(ranges)))


def ranges_in(envelopes: Iterable[Envelope]) -> Iterator[QueueRange]:
    """Yield the ranges that ``carried`` has put into envelopes."""
    for each in envelopes:
        yield from unpickled(each.payload)
