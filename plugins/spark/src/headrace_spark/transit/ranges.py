"""The ranges of a micro-batch: how they are cut into pieces, and which task reads which.

A queue with much more to read than the others is cut, so that all cores have something to do. A piece is a range like
any other: lanes may begin at any position. The results of the pieces of a queue are put in order again in the next
stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import BrokenQueueError, RetriableError
from headrace.interfaces.source import Reader

#: Smaller pieces cost more than the other cores give.
PIECE_RECORDS_MIN = 20_000
#: Planned ranges whose cuts are remembered.
_RANGES_MAX = 1_000


@dataclass(frozen=True)
class QueueRange:
    """Part of a micro-batch: the records of one queue from ``start`` to before ``end``. Read again, it is the same."""

    queue: Queue
    start: ReadPosition
    end: ReadPosition
    #: The queue is read for the first time / exists no more. Such a range may be empty.
    added: bool = False
    gone: bool = False
    #: Why the queue was set aside: nothing is read, and the dead letters get an entry.
    broken: str | None = None
    #: The place of this range among those of its queue in the micro-batch.
    number: int = 0

    def __len__(self) -> int:
        return max(0, self.end.offset - self.start.offset)


def pieces_of(shares: Mapping[Queue, int], tasks: int) -> dict[Queue, int]:
    """Return into how many pieces the records of each queue are cut, so that ``tasks`` tasks have about the same to do."""
    total = sum(shares.values())
    return {
        queue: max(1, min(-(-tasks * share // max(1, total)), share // PIECE_RECORDS_MIN))
        for queue, share in shares.items()
    }


def cut(reader: Reader, start: ReadPosition, end: ReadPosition, pieces: int) -> list[ReadPosition]:
    """Return positions strictly between ``start`` and ``end`` that cut the range into pieces of about the same size.

    ``end`` must be what ``position_after`` told from ``start``: then the range can also be read whole, by whoever does not
    know the cuts. Fewer pieces where the reader tells no more positions. Leaves the reader anywhere.
    """
    cuts: list[ReadPosition] = []
    at = start
    try:
        while len(cuts) < pieces - 1:
            if reader.position != at:
                reader.seek(at)
            following = reader.position_after((end.offset - at.offset) // (pieces - len(cuts)))
            if not at.offset < following.offset < end.offset:
                break
            cuts.append(at := following)
    except (RetriableError, BrokenQueueError):
        return []  # the task that reads the range meets the same, and can wait
    return cuts


class Cuts:
    """Remembers where planned ranges are cut. After a restart of the planner nothing is known of them: they are read whole."""

    def __init__(self) -> None:
        self._known: dict[tuple[Queue, int, int], Sequence[ReadPosition]] = {}

    def add(self, queue: Queue, start: ReadPosition, end: ReadPosition, cuts: Sequence[ReadPosition]) -> None:
        """Remember the cuts of a range, the oldest ones not for ever."""
        self._known.pop((queue, start.offset, end.offset), None)
        if cuts:
            self._known[queue, start.offset, end.offset] = cuts
        while len(self._known) > _RANGES_MAX:
            del self._known[next(iter(self._known))]

    def pieces(self, whole: QueueRange) -> list[QueueRange]:
        """Return the pieces of a range in their order."""
        inside = self._known.get((whole.queue, whole.start.offset, whole.end.offset), ())
        borders = [whole.start, *inside, whole.end]
        return [replace(whole, start=one, end=next_one) for one, next_one in pairwise(borders)]


def numbered(ranges: Iterable[QueueRange]) -> list[QueueRange]:
    """Return ranges, each with its place among those of its queue."""
    counts: dict[Queue, int] = {}
    made = []
    for each in ranges:
        number = counts[each.queue] = counts.get(each.queue, -1) + 1
        made.append(replace(each, number=number) if number else each)
    return made


def packed(ranges: Iterable[QueueRange], parts: int) -> list[list[QueueRange]]:
    """Put ranges into at most ``parts`` parts of about the same number of records: largest first, to the emptiest."""
    made: list[list[QueueRange]] = []
    sizes: list[int] = []
    for part in sorted(ranges, key=lambda r: (-len(r), r.queue, r.number)):
        if len(made) < parts:
            made.append([part])
            sizes.append(len(part))
        else:
            emptiest = sizes.index(min(sizes))
            made[emptiest].append(part)
            sizes[emptiest] += len(part)
    # A reader goes forward within a task: going back is slow, for example in a compressed file.
    return [sorted(part, key=lambda r: (r.queue, r.number)) for part in made]
