"""A YAML file as values that know their places. Nothing in a file makes an object of Python."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml
from headrace.foundation.errors import did_you_mean

from headrace_pipeline.errors import PipelineError, Place, all_of
from headrace_pipeline.variables import Variables

#: A pipeline is written by people. More is a mistake, or an attack by aliases.
_SIZE_MAX_BYTES = 4 * 1024 * 1024
_NESTING_MAX = 50
_VALUES_MAX = 200_000
_TAG = "tag:yaml.org,2002:"
#: A variable without quotes within braces or brackets, where YAML takes its own brace for the begin of a mapping.
_IN_BRACES = re.compile(r"[{\[].*[:,\[{]\s*[^\s\"',]*\$\{")


class _Loader(yaml.SafeLoader):
    """Composes nodes with the scalars of YAML 1.2: ``on``, ``yes`` and ``2024-01-31`` are texts. Limits depth."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012
    nesting = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        self.nesting += 1
        if self.nesting > _NESTING_MAX:
            raise yaml.MarkedYAMLError(
                problem=f"values nest deeper than {_NESTING_MAX} levels", problem_mark=event.start_mark
            )
        node = super().compose_node(parent, index)
        self.nesting -= 1
        return node


_Loader.add_implicit_resolver(f"{_TAG}null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(f"{_TAG}bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(f"{_TAG}int", re.compile(r"^(?:[-+]?[0-9]+)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    f"{_TAG}float", re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"), list("-+.0123456789")
)


@dataclass(frozen=True)
class Source:
    """The file: its name for messages, its lines, and the values of its ``${NAME}``."""

    name: str
    lines: tuple[str, ...]
    variables: Variables


@dataclass(frozen=True)
class Value:
    """Anything in the file, with its place."""

    file: Source = field(repr=False)
    place: Place

    kind = "value"

    def fail(
        self, message: str, *, hint: str | None = None, option: str | None = None, plugin: str | None = None
    ) -> NoReturn:
        """Raise PipelineError at this place."""
        raise self.error(message, hint=hint, option=option, plugin=plugin)

    def error(
        self,
        message: str,
        *,
        hint: str | None = None,
        option: str | None = None,
        plugin: str | None = None,
        place: Place | None = None,
    ) -> PipelineError:
        """Return the error for this place, or for another one of the same file."""
        return PipelineError(
            message, file=self.file.name, place=place or self.place, lines=self.file.lines, hint=hint,
            option=option, plugin=plugin, until=self._shown_until(),
        )  # fmt: skip

    def _shown_until(self) -> int | None:
        """Return the column up to which an error shows the line; None: all of it."""
        return None

    def text(self) -> str:
        """Return a text, with variables filled in. Raises PipelineError if it is anything else."""
        self.fail(f"expected a text, found {self.kind}")

    def expression(self) -> str:
        """Return a SQL expression as it is written: ``1`` and ``true`` are expressions too."""
        self.fail(f"expected a SQL expression, found {self.kind}")

    def texts(self) -> list[str]:
        """Return a list of texts; one text alone is a list of one."""
        return [self.text()]

    def section(self) -> Section:
        """Return a mapping of keys. Raises PipelineError if it is anything else."""
        self.fail(f"expected keys and values, found {self.kind}")

    def items(self) -> list[Value]:
        """Return the values of a list. Raises PipelineError if it is anything else."""
        self.fail(f"expected a list, found {self.kind}")

    def plain(self) -> Any:
        """Return the value for Python, with variables filled in."""
        raise NotImplementedError

    def scalars(self) -> Iterator[Scalar]:
        """Yield every scalar in the value."""
        return iter(())


@dataclass(frozen=True)
class Scalar(Value):
    """A text, a number, true, false or null. ``source`` is its text as YAML reads it, ``style`` its quote or ``|``."""

    value: str | int | float | bool | None
    source: str
    style: str | None

    @property
    def kind(self) -> str:  # type: ignore[override]
        if self.value is None:
            return "nothing"
        return "a text" if isinstance(self.value, str) else repr(self.value).lower()

    def text(self) -> str:
        if not isinstance(self.value, str):
            self.fail(f"expected a text, found {self.kind}", hint="write it in quotes" if self.source else None)
        return self.filled()

    def expression(self) -> str:
        if self.value is None:
            self.fail("expected a SQL expression, found nothing")
        return self.filled()

    def filled(self) -> str:
        """Return the text with variables filled in. Raises PipelineError for a variable without a value, or with a secret's name."""
        return self.file.variables.fill(self)

    def plain(self) -> Any:
        return self.filled() if isinstance(self.value, str) else self.value

    def section(self) -> Section:
        if self.value is None:  # ``steps:`` with nothing behind it
            return Section(self.file, self.place, {})
        return super().section()

    def scalars(self) -> Iterator[Scalar]:
        yield self

    def place_of(self, position: int) -> Place:
        """Return where a character of the text is in the file; the begin of the scalar where that is not sure."""
        lines, line = self.file.lines, self.place.line
        if self.style == "|":
            before = self.source[:position].split("\n")
            at, wanted = line + len(before), self.source.split("\n")[len(before) - 1]
            if at < len(lines) and lines[at].strip() == wanted.strip():
                return Place(at, lines[at].find(wanted.strip()) + len(before[-1]))
            return self.place
        column = self.place.column + (1 if self.style in ("'", '"') else 0)
        if line < len(lines) and lines[line][column:].startswith(self.source):
            return Place(line, column + position)
        return self.place


@dataclass(frozen=True)
class KeyText(Scalar):
    """A key. The value of a wrong key is not shown: the key may be a misspelt ``password``."""

    def _shown_until(self) -> int:
        return self.place.column + len(self.source) + (2 if self.style else 0) + 1


@dataclass(frozen=True)
class Items(Value):
    """A list."""

    values: tuple[Value, ...]

    kind = "a list"

    def items(self) -> list[Value]:
        return list(self.values)

    def texts(self) -> list[str]:
        return [each.text() for each in self.values]

    def plain(self) -> Any:
        return [each.plain() for each in self.values]

    def scalars(self) -> Iterator[Scalar]:
        for each in self.values:
            yield from each.scalars()


@dataclass(frozen=True)
class Entry:
    """A key with its place, and its value."""

    key: KeyText
    value: Value


@dataclass(frozen=True)
class Section(Value):
    """A mapping. Keys are texts as they are written, and come once."""

    entries: Mapping[str, Entry]

    kind = "keys and values"

    def section(self) -> Section:
        return self

    def get(self, key: str) -> Value | None:
        """Return the value of a key, or None if the key is not there."""
        entry = self.entries.get(key)
        return None if entry is None else entry.value

    def required(self, key: str, *, of: str) -> Value:
        """Return the value of a key. Raises PipelineError saying what lacks it."""
        found = self.get(key)
        if found is None:
            self.fail(f"{of} needs the key {key!r}", option=key)
        return found

    def check_keys(self, known: Collection[str], *, of: str) -> None:
        """Raise PipelineError for keys that are not known, each with the nearest one that is."""
        wrong = [
            entry.key.error(f"{of} has no key {key!r}", option=key, hint=did_you_mean(key, known, known="keys"))
            for key, entry in self.entries.items()
            if key not in known
        ]
        if wrong:
            raise all_of(wrong)

    def plain(self) -> Any:
        return {key: entry.value.plain() for key, entry in self.entries.items()}

    def scalars(self) -> Iterator[Scalar]:
        for entry in self.entries.values():
            yield entry.key
            yield from entry.value.scalars()


def is_nothing(value: Value) -> bool:
    """Return whether a value is null, or a key without a value."""
    return isinstance(value, Scalar) and value.value is None


def read(path: Path, given: Mapping[str, str]) -> Section:
    """Return the content of a pipeline file. Raises PipelineError if it is not YAML, for a key that comes twice, and for tags."""
    name = str(path)
    try:
        content = path.read_bytes()
        if len(content) > _SIZE_MAX_BYTES:
            raise PipelineError("the file is larger than 4 MiB", file=name)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise PipelineError(f"cannot be read: {error.strerror}", file=name) from error
    except UnicodeDecodeError as error:
        raise PipelineError(f"is not UTF-8: {error.reason} at byte {error.start}", file=name) from None
    file = Source(name, tuple(text.splitlines()), Variables(given, str(path.absolute().parent)))
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line, mark.column) if mark is not None else None
        said = error.problem or error.context or "this is not YAML"
        # The error of the library quotes the file, and there may be secrets in it.
        hint = None
        if place is not None and place.line < len(file.lines) and _IN_BRACES.search(file.lines[place.line]):
            hint = 'within braces and brackets a variable is in quotes: {password: "${NAME}"}'
        raise PipelineError(f"this is not YAML: {said}", file=name, place=place, lines=file.lines, hint=hint) from None
    except yaml.YAMLError as error:
        raise PipelineError(f"this is not YAML: {' '.join(str(error).split())}", file=name) from None
    finally:
        if loader is not None:
            loader.dispose()
    if node is None:
        raise PipelineError(
            "the file is empty", file=name, hint="a pipeline has the keys name, sources, steps and sinks"
        )
    return _Converter(file).value(node).section()


class _Converter:
    """Makes values from nodes, and counts them: an alias counts as all values that it refers to."""

    def __init__(self, file: Source) -> None:
        self._file = file
        self._count = 0

    def value(self, node: yaml.Node, depth: int = 0) -> Value:
        place = Place(node.start_mark.line, node.start_mark.column)
        self._count += 1
        if self._count > _VALUES_MAX or depth > _NESTING_MAX:
            Value(self._file, place).fail("aliases stand for too many values")
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return Section(self._file, place, self._entries(node, depth))
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return Items(self._file, place, tuple(self.value(each, depth + 1) for each in node.value))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, place)
        Value(self._file, place).fail(f"the tag {node.tag!r} has no meaning here")

    def _entries(self, node: yaml.MappingNode, depth: int) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            place = Place(key_node.start_mark.line, key_node.start_mark.column)
            if not isinstance(key_node, yaml.ScalarNode):
                Value(self._file, place).fail("a key must be a text")
            key = KeyText(self._file, place, key_node.value, key_node.value, key_node.style)
            if key.source in entries:
                first = entries[key.source].key.place.line + 1
                key.fail(f"the key {key.source!r} comes twice", hint=f"the first one is in line {first}")
            entries[key.source] = Entry(key, self.value(value_node, depth + 1))
        return entries

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Scalar:
        source, tag = node.value, node.tag
        value: str | int | float | bool | None
        if tag == f"{_TAG}null":
            value = None
        elif tag == f"{_TAG}bool" and source.lower() in ("true", "false"):
            value = source.lower() == "true"
        elif tag == f"{_TAG}int" and re.fullmatch(r"[-+]?\d{1,300}", source):
            value = int(source)
        elif tag == f"{_TAG}float" and source:
            try:
                value = float(source)
            except ValueError:
                Value(self._file, place).fail(f"{source!r} is not a number")
        elif tag == f"{_TAG}str":
            value = source
        else:
            Value(self._file, place).fail(f"the tag {tag!r} has no meaning here")
        return Scalar(self._file, place, value, source, node.style)
