"""The least number of single changes between two texts, in time that a long text cannot make long."""

from __future__ import annotations

#: Texts are compared up to this length: the time grows with the product of both.
_LENGTH_MAX = 20_000


def edit_distance(left_text: str, right_text: str) -> int | None:
    """Return how many characters are inserted, removed and changed at least; None for texts that are too long."""
    # Myers (1999) as Hyyrö (2003) has it: a column of the table of distances as bits, +1 and -1 from one row to the next.
    if len(left_text) > _LENGTH_MAX or len(right_text) > _LENGTH_MAX:
        return None
    size = len(left_text)
    if size == 0:
        return len(right_text)
    places: dict[str, int] = {}
    for place, character in enumerate(left_text):
        places[character] = places.get(character, 0) | 1 << place
    every, last = (1 << size) - 1, 1 << size - 1
    up, down, distance = every, 0, size
    for character in right_text:
        equal = places.get(character, 0)
        diagonal = (((equal & up) + up) ^ up) | equal | down
        right_up, right_down = down | (every & ~(diagonal | up)), up & diagonal
        distance += bool(right_up & last) - bool(right_down & last)
        right_up, right_down = (right_up << 1 | 1) & every, right_down << 1 & every
        up, down = right_down | (every & ~(diagonal | right_up)), right_up & diagonal
    return distance
