"""Patterns compiled when the job is built. They hold plain texts, so that they can be sent to the processes that run
them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import headrace as hr
import polars as pl

from headrace_grok.parsing import Definition, parse, refusal
from headrace_grok.rendering import Renderer, Target, is_filterable, is_linear
from headrace_grok.required_texts import Choice, required_texts
from headrace_grok.tree import Group, Named, Node, Position, Text, sequence, walk
from headrace_grok.tree import Sequence as Parts

#: The group that tells whether the pattern matches a row: a pattern may have no other group, or none that took part in
#: the match.
FITS = "fits"
_SHOWN_MAX = 40


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix of a pattern, up to one of its parts. It matches lazily."""

    #: The parts of the pattern up to here, as they were written, and the part behind them.
    fitting: str
    following: str
    text: str


@dataclass(frozen=True, slots=True)
class Program:
    """A pattern, ready to run."""

    #: As the user has written it.
    source: str
    #: The types of the fields that it captures.
    fields: Mapping[str, str]
    #: The field of each group: several groups may capture one field.
    groups: Mapping[str, str]
    #: The expression for Rust's engine, which searches a column at once; None if that engine cannot run the pattern.
    rust: str | None
    #: The expression for Python's ``regex``, which runs any pattern, one line at a time.
    python: str
    #: The expression of the pre-filter: it matches every line that the pattern matches, and perhaps more. None if a
    #: filter cannot decide.
    filter: str | None
    #: Every matching line contains a text of each of them.
    required: tuple[Choice, ...]
    #: Prefixes from the shortest to the longest, without the whole pattern.
    prefixes: Sequence[Prefix]


def compiled(patterns: Sequence[str], definitions: Mapping[str, Definition]) -> tuple[Program, ...]:
    """Return the programs of patterns. Raises OptionError for one that cannot be used, or a field of two types."""
    if not patterns:
        raise refusal("no pattern is given", 'such as "%{IP:client} %{WORD:method} %{NOTSPACE:path}"')
    try:
        programs = tuple(_program(source, definitions) for source in patterns)
    except RecursionError as error:  # such as a thousand repetitions of a repetition
        raise refusal(
            "a pattern is nested too deeply", "leave out groups and repetitions that hold only another one"
        ) from error
    fields_of(programs)
    return programs


def fields_of(programs: Sequence[Program]) -> dict[str, str]:
    """Return the fields of all patterns and their types, in the order in which they come. Raises OptionError."""
    found: dict[str, tuple[str, str]] = {}
    for program in programs:
        for name, kind in program.fields.items():
            before, where = found.setdefault(name, (kind, program.source))
            if before != kind:
                raise refusal(
                    f"field {name!r} is {before} in {_shown(where)} and {kind} in {_shown(program.source)}",
                    "give it the same type in all patterns, such as %{NUMBER:size:int}",
                )
    return {name: kind for name, (kind, _) in found.items()}


def _program(source: str, definitions: Mapping[str, Definition]) -> Program:
    tree = parse(source, definitions)
    try:
        python = Renderer("python")
        text = python.text(tree)
        rust = _rust(tree)
        if rust is None:
            _check_python(text)
    except ValueError as error:
        raise refusal(f"unusable pattern {_shown(source)}: {error}") from error
    fields: dict[str, str] = {}
    for capture in python.captures:
        assert capture.field is not None
        # %{X:size} around %{INT:size:int} captures the same twice: the type of the inner one is the field's.
        known = fields.get(capture.field, "string")
        if known != capture.type and "string" not in (known, capture.type):
            raise refusal(f"field {capture.field!r} has two types in {_shown(source)}: {known} and {capture.type}")
        fields[capture.field] = capture.type if known == "string" else known
    groups = {f"g{number}": str(capture.field) for number, capture in enumerate(python.captures)}
    return Program(
        source,
        fields,
        groups,
        rust,
        text,
        Renderer("filter").text(tree) if is_filterable(tree) else None,
        required_texts(tree),
        _prefixes(tree, linear=rust is not None),
    )


def _check_python(text: str) -> None:
    import regex

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            regex.compile(text, regex.VERSION0)
    except (regex.error, RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(str(error)) from error


def _rust(tree: Node) -> str | None:
    """Return the pattern for Rust's engine, or None if that engine does not support a part of it, or finds it too
    large.
    """
    if not is_linear(tree):
        return None
    text = f"{Renderer('rust').text(sequence([Group('plain', tree)]))}(?P<{FITS}>)"
    try:
        pl.Series([""]).str.extract_groups(text)
    except pl.exceptions.PolarsError:
        return None
    return text


def _prefixes(tree: Node, *, linear: bool) -> tuple[Prefix, ...]:
    target: Target = "rust" if linear else "python"
    parts = _together(_elements(tree))
    found = []
    for count in range(1, len(parts)):
        renderer = Renderer(target, capturing=not linear, lazily=True)
        try:
            text = renderer.text(sequence([node for part in parts[:count] for node, _ in part]))
        except ValueError:  # a back reference whose capture is no part of its own
            break
        found.append(Prefix("".join(map(_label, parts[:count])), _label(parts[count]), text))
    return tuple(found)


def _together(elements: list[tuple[Node, str]]) -> list[list[tuple[Node, str]]]:
    """Return elements grouped into parts: each part also has the texts and positions before it, because every part that
    is tried costs time.
    """
    parts: list[list[tuple[Node, str]]] = [[]]
    for element in elements:
        parts[-1].append(element)
        if not isinstance(element[0], Text | Position):
            parts.append([])
    return parts if parts[-1] else parts[:-1]


def _label(part: list[tuple[Node, str]]) -> str:
    return "".join(label for _, label in part)


def _elements(node: Node) -> list[tuple[Node, str]]:
    """Return the consecutive parts of a pattern, each with its text as the user wrote it."""
    if isinstance(node, Parts):
        return [element for item in node.items for element in _elements(item)]
    if isinstance(node, Named) and any(isinstance(part, Named) and part.field for part in walk(node.item)):
        inner = _elements(node.item)
        if len(inner) > 1:
            return inner
    return [(node, Renderer("shown").text(node))]


def _shown(source: str) -> str:
    return repr(source if len(source) <= _SHOWN_MAX else source[:_SHOWN_MAX] + "…")


def schema_of(programs: Sequence[Program]) -> hr.Schema:
    """Return the columns of the fields. Raises OptionError for a reserved name."""
    return hr.Schema.of(fields_of(programs))
