"""Finds the messages that a .proto text declares, by their indexes. The first bytes of a body contain the index of its
message.

Only names are read. The text is not compiled, because the fields are in the job's descriptor set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

#: Indexes from the outermost message to a nested one.
Place = tuple[int, ...]
_LEFT_OUT = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_TOKENS = re.compile(r"[A-Za-z_][\w.]*|[{};]|\S")


def messages_of(text: str) -> Mapping[Place, str]:
    """Return the full names of all messages by their indexes."""
    tokens = _TOKENS.findall(_LEFT_OUT.sub(" ", text))
    package = ""
    found: dict[Place, str] = {}
    #: For each open bracket: the name and index of its message, or None.
    open_blocks: list[tuple[str, Place] | None] = []
    counts: dict[Place, int] = {}
    for position, token in enumerate(tokens):
        if token == "package" and not open_blocks and position + 1 < len(tokens):
            package = tokens[position + 1] + "."
        elif token == "{":
            open_blocks.append(_message_before(tokens, position, open_blocks, package, counts, found))
        elif token == "}" and open_blocks:
            open_blocks.pop()
    return found


def _message_before(
    tokens: Sequence[str],
    position: int,
    open_blocks: Sequence[tuple[str, Place] | None],
    package: str,
    counts: dict[Place, int],
    found: dict[Place, str],
) -> tuple[str, Place] | None:
    """Return the message whose block begins at a bracket; None for any other block."""
    if position >= 4 and tokens[position - 4] == "group" and tokens[position - 2] == "=":
        declared = tokens[position - 3]  # in proto2: declares a field and its message together
    elif position >= 2 and tokens[position - 2] == "message":
        declared = tokens[position - 1]
    else:
        return None
    if not declared.isidentifier():
        return None
    # A message inside anything other than a message (an option) does not count.
    if open_blocks and open_blocks[-1] is None:
        return None
    outer_name, outer = open_blocks[-1] if open_blocks and open_blocks[-1] is not None else (package, ())
    place = (*outer, counts.get(outer, 0))
    counts[outer] = place[-1] + 1
    name = f"{outer_name}{declared}"
    found[place] = name
    return f"{name}.", place


def written(place: Place) -> bytes:
    """Return the bytes of an index before a body: its length and its numbers, or one byte 0 for the first message."""
    if place == (0,):
        return b"\x00"
    return b"".join(_varint(2 * number) for number in (len(place), *place))  # zigzag of a non-negative number


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def read(body: bytes) -> tuple[Place, int] | None:
    """Return the index at the beginning of a body, and how many bytes it takes; None if there is no index."""
    numbers: list[int] = []
    wanted, at = 1, 0
    while len(numbers) < wanted:
        value = shift = 0
        while True:
            if at >= len(body) or shift > 28:
                return None
            byte = body[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if value & 1:  # a negative number
            return None
        numbers.append(value >> 1)
        if len(numbers) == 1:
            if numbers[0] == 0:
                return (0,), at
            wanted = numbers[0] + 1
            if wanted > 64:
                return None
    return tuple(numbers[1:]), at
