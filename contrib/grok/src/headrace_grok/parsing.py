"""Reads grok expressions: ``%{NAME:field:type}`` and named captures in regular expressions of Logstash's dialect (Oniguruma)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import headrace as hr
from headrace.foundation.errors import did_you_mean

from headrace_grok import characters
from headrace_grok.tree import (
    Alternation,
    BackReference,
    Characters,
    Group,
    GroupKind,
    Manner,
    Named,
    Node,
    Position,
    PositionKind,
    Repeat,
    Text,
    nested_repeats,
    sequence,
)

#: Names of types behind a field, as Logstash and Elasticsearch write them, and as headrace does.
TYPES = {
    "int": "int64", "integer": "int64", "long": "int64", "int64": "int64", "float": "float64", "double": "float64",
    "float64": "float64", "bool": "boolean", "boolean": "boolean", "string": "string", "keyword": "string",
    "text": "string",
}  # fmt: skip

_NODES_MAX = 50_000
_DEPTH_MAX = 100
_REPEATS_MAX = 1_000
#: Each level of repetitions within each other multiplies what Python's matcher needs to compile: 57 levels took 4.7 GB.
_REPEATS_NESTED_MAX = 8
_REFERENCE = re.compile(r"%\{(?P<name>\w+)(?::(?P<field>[^:}]+))?(?::(?P<type>\w+))?\}")
_FIELD = re.compile(r"[\w@][\w@.-]*")
_NESTED_FIELD = re.compile(r"(?:\[[\w@.-]+\])+")
_COUNT = re.compile(r"\{(?P<least>\d*)(?P<comma>,)?(?P<most>\d*)\}")
_POSITIONS: dict[str, PositionKind] = {
    "A": "text begin", "z": "text end", "Z": "last line end", "b": "word boundary", "B": "no word boundary",
}  # fmt: skip
_GROUPS: tuple[tuple[str, GroupKind], ...] = (
    ("(?:", "plain"), ("(?>", "atomic"), ("(?=", "ahead"), ("(?!", "not ahead"), ("(?<=", "behind"), ("(?<!", "not behind"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Definition:
    """A named pattern: its text, and other names for the fields in it."""

    text: str
    renamed: dict[str, str] = field(default_factory=dict)


def parse(expression: str, definitions: Mapping[str, Definition]) -> Node:
    """Return the tree of an expression. Raises OptionError that says what is wrong, and where."""
    budget = [_NODES_MAX]
    tree = _Parser(expression, definitions, {}, (), budget).whole()
    if nested_repeats(tree) > _REPEATS_NESTED_MAX:
        raise refusal(
            f"repetitions are nested deeper than {_REPEATS_NESTED_MAX} levels: {expression:.80}",
            "(a+)+ matches what a+ does: leave out the outer ones",
        )
    return tree


def refusal(message: str, hint: str | None = None) -> hr.OptionError:
    """Return the error for a pattern that cannot be used."""
    return hr.OptionError(message, plugin="grok", option="pattern", hint=hint)


class _Parser:
    """Reads one text. The text of a reference is read by a parser of its own, so that it is one part, whatever it holds."""

    def __init__(
        self,
        text: str,
        definitions: Mapping[str, Definition],
        renamed: dict[str, str],
        chain: tuple[str, ...],
        budget: list[int],
    ) -> None:
        self.text = text
        self.at = 0
        self.definitions = definitions
        self.renamed = renamed
        self.chain = chain
        self.budget = budget
        #: Logstash lets . take newlines, unless (?-m) says otherwise.
        self.dot_all = True
        self.depth = 0

    def whole(self) -> Node:
        node = self.alternation()
        if self.at < len(self.text):
            raise self.wrong("a parenthesis is closed that was not opened", r"write \) for the character")
        return node

    def wrong(self, what: str, hint: str | None = None) -> hr.OptionError:
        where = f" of %{{{self.chain[-1]}}}" if self.chain else ""
        shown = self.text if len(self.text) <= 80 else f"{self.text[max(0, self.at - 40) : self.at + 40]}…"
        return refusal(f"{what}, at character {self.at + 1}{where}: {shown}", hint)

    def alternation(self) -> Node:
        branches = [self.branch()]
        while self.text.startswith("|", self.at):
            self.at += 1
            branches.append(self.branch())
        return branches[0] if len(branches) == 1 else Alternation(tuple(branches))

    def branch(self) -> Node:
        items: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            item = self.item()
            if item is not None:
                items.append(self.repeated(item))
        return sequence(items)

    def item(self) -> Node | None:
        self.budget[0] -= 1
        if self.budget[0] < 0:
            raise self.wrong(f"the pattern is too large: more than {_NODES_MAX:,} parts with all that it refers to")
        character = self.text[self.at]
        found = _REFERENCE.match(self.text, self.at) if character == "%" else None
        if found is not None:
            return self.reference(found)
        if self.text.startswith("%{", self.at):
            raise self.wrong("a reference has the form %{NAME}, %{NAME:field} or %{NAME:field:type}", r"else write \%{")
        read: dict[str, Callable[[], Node | None]] = {"(": self.group, "[": self.character_class, "\\": self.escape}
        if character in read:
            return read[character]()
        if character in "*+?" or (character == "{" and self.count() is not None):
            raise self.wrong("nothing stands before a repetition", f"write \\{character} for the character")
        self.at += 1
        if character == ".":
            return Characters(characters.EVERY) if self.dot_all else Characters(characters.NEWLINE, negated=True)
        if character in "^$":
            return Position("line begin" if character == "^" else "line end")
        return Text(character)

    # ------------------------------------------------------------------------------------------------ repetition

    def count(self) -> tuple[int, int | None, int] | None:
        """Return least and most of a repetition in braces, and where it ends; None if the brace is a character."""
        found = _COUNT.match(self.text, self.at)
        if found is None or not (found["least"] or found["most"]):
            return None
        least = int(found["least"] or 0)
        if not found["comma"]:
            return least, least, found.end()
        return least, int(found["most"]) if found["most"] else None, found.end()

    def repeated(self, item: Node) -> Node:
        while self.at < len(self.text):
            character = self.text[self.at]
            counted = self.count() if character == "{" else None
            if counted is not None:
                least, most, self.at = counted
                if max(least, most or 0) > _REPEATS_MAX or (most is not None and most < least):
                    raise self.wrong(f"a repetition goes from a smaller to a larger number, up to {_REPEATS_MAX:,}")
                manner: Manner = "greedy"
                if self.text.startswith("?", self.at):
                    if least == most:
                        raise self.wrong("a fixed number of repetitions cannot be lazy", "leave out the question mark")
                    self.at, manner = self.at + 1, "lazy"
            elif character in "*+?":
                least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
                self.at += 1
                manner = self.manner()
            else:
                break
            item = Repeat(item, least, most, manner)
        return item

    def manner(self) -> Manner:
        following = self.text[self.at : self.at + 1]
        if following and following in "?+":
            self.at += 1
            return "lazy" if following == "?" else "possessive"
        return "greedy"

    # ------------------------------------------------------------------------------------------------ groups

    def group(self) -> Node | None:
        named = re.compile(r"\(\?P?<(?P<name>[^>=!]+)>").match(self.text, self.at)
        if named is not None:
            self.at = named.end()
            field_name = self.field(named["name"])
            return Named(f"(?<{named['name']}>…)", self.inner(), field_name)
        for opening, kind in _GROUPS:
            if self.text.startswith(opening, self.at):
                self.at += len(opening)
                return Group(kind, self.inner())
        if self.text.startswith("(?#", self.at):
            end = self.text.find(")", self.at)
            if end < 0:
                raise self.wrong("a comment is not closed")
            self.at = end + 1
            return None
        if self.text.startswith("(?", self.at):
            return self.flags()
        self.at += 1
        return Group("plain", self.inner())

    def inner(self) -> Node:
        """Read up to the closing parenthesis."""
        before = self.dot_all
        self.depth += 1
        if self.depth > _DEPTH_MAX:
            raise self.wrong(f"groups are nested deeper than {_DEPTH_MAX} levels")
        node = self.alternation()
        if not self.text.startswith(")", self.at):
            raise self.wrong("a parenthesis is not closed", r"write \( for the character")
        self.at += 1
        self.depth -= 1
        self.dot_all = before
        return node

    def flags(self) -> Node:
        found = re.compile(r"\(\?(?P<on>[a-z]*)(?:-(?P<off>[a-z]*))?(?P<end>[:)])").match(self.text, self.at)
        on, off = (found["on"] or "", found["off"] or "") if found is not None else ("?", "")
        if found is None or set(on + off) - set("im"):
            raise self.wrong("this kind of group is not supported", "flags are i (any case) and m (. takes newlines)")
        self.at = found.end()
        before = self.dot_all
        self.dot_all = ("m" in on) or (self.dot_all and "m" not in off)
        # Flags without a colon hold to the end of the group around them, as in Oniguruma.
        node = self.inner() if found["end"] == ":" else self.alternation()
        self.dot_all = before
        kind: GroupKind = "any case" if "i" in on else "exact case" if "i" in off else "plain"
        return Group(kind, node)

    # ------------------------------------------------------------------------------------------------ references

    def reference(self, found: re.Match[str]) -> Node:
        name, kind = found["name"], found["type"] or "string"
        if name in self.chain:
            raise self.wrong(f"%{{{name}}} refers to itself: {' → '.join((*self.chain, name))}")
        if name not in self.definitions:
            hint = did_you_mean(name, self.definitions, known="patterns")
            raise self.wrong(f"unknown pattern {name!r}", hint or "define it in pattern_definitions")
        if kind not in TYPES:
            raise self.wrong(f"unknown type {kind!r}", did_you_mean(kind, TYPES, known="types"))
        field_name = self.field(found["field"]) if found["field"] else None
        definition = self.definitions[name]
        inner = _Parser(definition.text, self.definitions, definition.renamed, (*self.chain, name), self.budget)
        inner.depth = self.depth + 1
        if inner.depth > _DEPTH_MAX:
            raise self.wrong(f"references are nested deeper than {_DEPTH_MAX} levels")
        self.at = found.end()
        return Named(found[0], inner.whole(), field_name, TYPES[kind])

    def field(self, text: str) -> str:
        """Return the name of a column: ``[a][b]`` of Logstash is ``a.b``."""
        text = text.replace("?", "")  # Logstash's own patterns have some, and it takes no notice of them
        if _NESTED_FIELD.fullmatch(text):
            text = text[1:-1].replace("][", ".")
        elif not _FIELD.fullmatch(text):
            raise self.wrong(f"unusable field name {text!r}", "use letters, digits, _ . - @, or [outer][inner]")
        return self.renamed.get(text, text)

    # ------------------------------------------------------------------------------------------------ characters

    def escape(self) -> Node:
        letter = self.text[self.at + 1 : self.at + 2]
        if letter in _POSITIONS:
            self.at += 2
            return Position(_POSITIONS[letter])
        if letter == "k":
            found = re.compile(r"\\k<([^>]+)>").match(self.text, self.at)
            if found is None:
                raise self.wrong(r"a back reference has the form \k<name>")
            self.at = found.end()
            return BackReference(self.field(found[1]))
        got = self.escaped()
        return Text(got) if isinstance(got, str) else got

    def escaped(self) -> str | Characters:
        """Read an escape that may stand within a class too."""
        if self.at + 1 >= len(self.text):
            raise self.wrong("a backslash ends the pattern")
        letter = self.text[self.at + 1]
        if letter.lower() in characters.ESCAPES:
            self.at += 2
            return Characters(characters.ESCAPES[letter.lower()], negated=letter.isupper())
        if letter in characters.CONTROLS:
            self.at += 2
            return characters.CONTROLS[letter]
        coded = re.compile(r"\\(?:x\{([0-9A-Fa-f]{1,6})\}|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4}))").match(
            self.text, self.at
        )
        if coded is not None:
            code = int(coded[1] or coded[2] or coded[3], 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise self.wrong("this code is no character")
            self.at = coded.end()
            return chr(code)
        named = re.compile(r"\\(?P<sign>[pP])\{(?P<not>\^?)(?P<name>\w+)\}").match(self.text, self.at)
        if named is not None:
            self.at = named.end()
            negated = (named["sign"] == "P") != bool(named["not"])
            return Characters((), (f"\\p{{{named['name']}}}",), negated)
        if letter.isalnum() and letter.isascii():
            hint = r"captures are named: \k<name>" if letter.isdigit() else "see docs/grok.md for what is supported"
            raise self.wrong(f"unknown escape \\{letter}", hint)
        self.at += 2
        return letter

    def character_class(self) -> Characters:
        self.at += 1
        negated = self.text.startswith("^", self.at)
        self.at += negated
        ranges: list[tuple[int, int]] = []
        properties: list[str] = []
        first = True
        while not self.text.startswith("]", self.at) or first:
            low = self.member(ranges, properties)
            first = False
            if low is None:
                continue
            high = self.range_end() or low
            if high < low:
                raise self.wrong(
                    "a range of characters goes from a lower to a higher one", r"write \- for the character"
                )
            ranges.append((ord(low), ord(high)))
        self.at += 1
        return Characters(characters.merged(ranges), tuple(properties), negated)

    def range_end(self) -> str | None:
        """Return the last character of a range whose first one was read; None if it is not a range."""
        if not self.text.startswith("-", self.at) or self.text[self.at + 1 : self.at + 2] in ("]", ""):
            return None
        self.at += 1
        if self.text[self.at] != "\\":
            self.at += 1
            return self.text[self.at - 1]
        got = self.escaped()
        if not isinstance(got, str):
            raise self.wrong("a range ends in a class of characters", r"write \- for the character")
        return got

    def member(self, ranges: list[tuple[int, int]], properties: list[str]) -> str | None:
        """Read one member of a class: return a character, or add what stands for several and return None."""
        if self.at >= len(self.text):
            raise self.wrong("a class of characters is not closed", r"write \[ for the character")
        posix = re.compile(r"\[:(\^?)(\w+):\]").match(self.text, self.at)
        if posix is not None and posix[2] in characters.POSIX:
            found = characters.POSIX[posix[2]]
            ranges.extend(characters.others(found) if posix[1] else found)
            self.at = posix.end()
            return None
        character = self.text[self.at]
        if self.text.startswith("&&", self.at):
            raise self.wrong("intersections of classes of characters are not supported", r"write \& for the character")
        if character == "[":
            self._add(self.character_class(), ranges, properties)
            return None
        if character != "\\":
            self.at += 1
            return character
        if self.text[self.at + 1 : self.at + 2] == "b":
            self.at += 2
            return "\b"
        got = self.escaped()
        if isinstance(got, str):
            return got
        self._add(got, ranges, properties)
        return None

    def _add(self, found: Characters, ranges: list[tuple[int, int]], properties: list[str]) -> None:
        """Add characters to a class that holds them."""
        if found.properties and found.negated:
            raise self.wrong("a negated property within a class is not supported")
        properties.extend(found.properties)
        ranges.extend(characters.others(found.ranges) if found.negated else found.ranges)
