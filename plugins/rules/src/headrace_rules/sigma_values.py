"""Values of Sigma rules: texts with wildcards, and the modifiers that change them before they are compared.

A text is a list of *parts*: literal texts, wildcards and placeholders. ``wide`` and ``utf16`` make bytes of the literal texts,
which ``base64`` and ``base64offset`` encode.
"""

from __future__ import annotations

import base64
import enum
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

#: Modifiers after which a value is another text, and those that make several texts of one.
TRANSFORMATIONS = ("windash", "wide", "utf16le", "utf16be", "utf16", "base64", "base64offset", "expand")
#: At most so many texts are made of one value.
VARIANTS_MAX = 5_000
#: What Windows takes for the dash before a parameter: dash, slash, en dash, em dash, horizontal bar.
_DASHES = ("-", "/", "\u2013", "\u2014", "\u2015")
_DASH = re.compile(r"\B[-/]\b")
_PLACEHOLDER = re.compile(r"%([^%\\\s]+)%")


class SigmaError(ValueError):
    """A part of a rule is wrong, or has no meaning here; the message names it."""


class Wildcard(enum.Enum):
    """What stands for any text, or for any character."""

    ANY = "*"
    ONE = "?"


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A name between percent signs, for which the option ``placeholders`` has values."""

    name: str


Part = str | bytes | Wildcard | Placeholder
Text = list[Part]


def parsed(text: str) -> Text:
    """Return the parts of a value. A backslash before ``*``, ``?`` or a backslash takes that character literally."""
    parts: Text = []
    literal = ""
    position = 0
    while position < len(text):
        character = text[position]
        following = text[position + 1 : position + 2]
        if character == "\\" and following and following in "*?\\":
            literal += following
            position += 2
            continue
        position += 1
        if character in "*?":
            if literal:
                parts.append(literal)
            literal = ""
            parts.append(Wildcard(character))
        else:
            literal += character
    return [*parts, literal] if literal or not parts else parts


def surrounded(parts: Sequence[Part], before: bool, after: bool) -> Text:
    """Return the parts with ``*`` at one end or at both, where there is none yet."""
    made = list(parts)
    if before and (not made or made[0] is not Wildcard.ANY):
        made.insert(0, Wildcard.ANY)
    if after and made[-1] is not Wildcard.ANY:
        made.append(Wildcard.ANY)
    return made


def transformed(parts: Text, modifiers: Sequence[str], placeholders: Mapping[str, Sequence[str]]) -> list[Text]:
    """Return the texts that the modifiers make of one value, in the order in which the rule names them. Raises SigmaError."""
    found = [parts]
    for modifier in modifiers:
        if modifier == "expand":
            made: Iterable[Text] = (text for one in found for text in _expanded(one, placeholders))
        elif modifier in _MODIFIERS:
            made = (text for one in found for text in _MODIFIERS[modifier](one))
        else:
            continue
        # A few dashes or placeholders make more texts than any memory holds.
        found = list(itertools.islice(made, VARIANTS_MAX + 1))
        if len(found) > VARIANTS_MAX:
            raise SigmaError(f"{modifier} makes more than {VARIANTS_MAX:,} texts of one value")
    return [_as_text(one) for one in found]


def _as_text(parts: Text) -> Text:
    made: Text = []
    for part in parts:
        if isinstance(part, bytes):
            try:
                part = part.decode()
            except UnicodeDecodeError:
                raise SigmaError(
                    "wide and utf16 make bytes that a text cannot hold; base64 or base64offset must follow them"
                ) from None
        if isinstance(part, str) and made and isinstance(made[-1], str):
            part = made.pop() + part  # type: ignore[operator]
        made.append(part)
    return made


def _expanded(parts: Text, placeholders: Mapping[str, Sequence[str]]) -> Iterator[Text]:
    choices: list[list[Text]] = []
    for part in parts:
        if not isinstance(part, str):
            choices.append([[part]])
            continue
        pieces = _PLACEHOLDER.split(part)
        for index, piece in enumerate(pieces):
            if index % 2 == 0:
                choices.append([[piece]] if piece else [[]])
            elif piece in placeholders:
                choices.append([parsed(str(value)) for value in placeholders[piece]])
            else:
                raise SigmaError(f"the option 'placeholders' has no values for %{piece}%")
    for made in itertools.product(*choices):
        yield [part for one in made for part in one]


def _with_dashes(parts: Text) -> Iterator[Text]:
    choices: list[list[Text]] = []
    for part in parts:
        if not isinstance(part, str):
            choices.append([[part]])
            continue
        at = 0
        for found in _DASH.finditer(part):
            choices.append([[part[at : found.start()]]])
            choices.append([[dash] for dash in _DASHES])
            at = found.end()
        choices.append([[part[at:]]])
    for made in itertools.product(*choices):
        yield [part for one in made for part in one if part != ""] or [""]


def _encoded(encoding: str, mark: bytes = b"") -> Callable[[Text], Iterator[Text]]:
    def encode(parts: Text) -> Iterator[Text]:
        made: Text = [part.encode(encoding) if isinstance(part, str) else part for part in parts]
        if mark:
            made = [mark + made[0], *made[1:]] if isinstance(made[0], bytes) else [mark, *made]
        yield made

    return encode


def _content(parts: Text, modifier: str) -> bytes:
    if any(isinstance(part, Wildcard | Placeholder) for part in parts):
        raise SigmaError(f"{modifier} cannot encode a value with wildcards")
    return b"".join(part.encode() if isinstance(part, str) else part for part in parts if isinstance(part, str | bytes))


def _base64(parts: Text) -> Iterator[Text]:
    yield [base64.b64encode(_content(parts, "base64")).decode()]


def _base64_offsets(parts: Text) -> Iterator[Text]:
    """Yield what a Base64 text has for certain if the value is in the encoded bytes, by its place modulo three."""
    content = _content(parts, "base64offset")
    for offset in range(3):
        encoded = base64.b64encode(b" " * offset + content).decode()
        begin = (0, 2, 3)[offset]
        end = (None, -3, -2)[(len(content) + offset) % 3]
        yield [encoded[begin:end]]


_MODIFIERS: Mapping[str, Callable[[Text], Iterator[Text]]] = {
    "windash": _with_dashes, "wide": _encoded("utf-16-le"), "utf16le": _encoded("utf-16-le"),
    "utf16be": _encoded("utf-16-be"), "utf16": _encoded("utf-16-le", b"\xff\xfe"), "base64": _base64,
    "base64offset": _base64_offsets,
}  # fmt: skip
