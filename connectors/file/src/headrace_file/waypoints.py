"""Places that a count of records has passed, so that the next count need not begin at the beginning of a file.

A planner counts a file to know where it ends, and again to know where each range of it ends. With a place every few
megabytes the second count reads only the bytes after the last place before its end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from headrace_file.identity import Place

#: The number of places that are kept; the distance between them grows with the file.
_PLACES_MAX = 2_048
#: A quarter of what one read takes, less the part of a record by which counts miss a round number.
_BYTES_BETWEEN = 2 * 1024**2 - 64 * 1024


class Waypoints:
    """Places of one queue in ascending order. Not locked: the counting code holds the lock of the queue."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._bytes_between = _BYTES_BETWEEN

    @property
    def places(self) -> Sequence[Place]:
        """The places, in ascending order."""
        return tuple(self._places)

    def is_due(self, generation: int, byte: int) -> bool:
        """Return whether a count that has come to ``byte`` of a file is far enough behind the last place."""
        if not self._places:
            return byte >= self._bytes_between
        last = self._places[-1]
        if generation != last.generation:
            return generation > last.generation and byte >= self._bytes_between
        return byte >= last.byte + self._bytes_between

    def passed(self, place: Place) -> None:
        """Keep a place that a count has passed. Those of earlier files are of no more use to whoever plans this one."""
        if self._places and self._places[-1].generation != place.generation:
            self._places.clear()
            self._bytes_between = _BYTES_BETWEEN
        self._places.append(place)
        if len(self._places) > _PLACES_MAX:
            self._bytes_between *= 2
            del self._places[::2]

    def use(self, places: Sequence[Place]) -> None:
        """Take places that another process has passed, unless a count here has come further."""
        if not places or (self._places and _order(self._places[-1]) >= _order(places[-1])):
            return
        self._places = sorted((place for place in places if place.generation == places[-1].generation), key=_order)
        if len(self._places) > 1:
            self._bytes_between = max(_BYTES_BETWEEN, self._places[-1].byte - self._places[-2].byte)

    def nearest(self, begin: Place, offset: int, byte: int | None = None) -> Place | None:
        """Return the last place behind ``begin`` and at most at ``offset`` and ``byte``, in the same file; None: there is none."""
        at = bisect_right(self._places, (begin.generation, offset), key=_order)
        if byte is not None:
            at = min(at, bisect_right(self._places, (begin.generation, byte), key=_by_byte))
        place = self._places[at - 1] if at else None
        return place if place is not None and _order(place) > _order(begin) and _same(place, begin) else None


def _order(place: Place) -> tuple[int, int]:
    return place.generation, place.offset


def _by_byte(place: Place) -> tuple[int, int]:
    return place.generation, place.byte


def _same(place: Place, begin: Place) -> bool:
    """Return whether two places are in one file, as far as is known of it."""
    return place.generation == begin.generation and (
        begin.file is None or place.file is None or place.file.key == begin.file.key
    )
