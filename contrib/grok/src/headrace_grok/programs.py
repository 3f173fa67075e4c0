"""What is known of each pattern when the job is built: plain texts that are sent to where it runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import headrace as hr
import polars as pl

from headrace_grok.parsing import Definition, parse, refusal
from headrace_grok.rendering import Renderer, Target, is_filterable, is_linear
from headrace_grok.required_texts import required_text
from headrace_grok.tree import Group, Named, Node, Position, Text, sequence, walk
from headrace_grok.tree import Sequence as Parts

#: The group that says of a row whether the pattern fits: patterns may have no other, or none that took part.
FITS = "fits"
_SHOWN_MAX = 40


@dataclass(frozen=True, slots=True)
class Prefix:
    """The begin of a pattern up to one of its parts, which takes as little of a line as it can."""

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
    #: For Rust's engine, which runs a column at once; None: it cannot run the pattern.
    rust: str | None
    #: For Python's ``regex``, which runs any pattern, line by line.
    python: str
    #: Fits whatever the pattern fits, and perhaps more; None: a filter cannot decide on it.
    filter: str | None
    #: A text that every line has that the pattern fits.
    required: str | None
    #: From the shortest to the longest; the whole pattern is none of them.
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
        required_text(tree),
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
    """Return the pattern for Rust's engine, or None where it has no such thing, or says that the pattern is too large."""
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
    """Return elements in parts, each with the texts and positions before it: every part that is tried costs time."""
    parts: list[list[tuple[Node, str]]] = [[]]
    for element in elements:
        parts[-1].append(element)
        if not isinstance(element[0], Text | Position):
            parts.append([])
    return parts if parts[-1] else parts[:-1]


def _label(part: list[tuple[Node, str]]) -> str:
    return "".join(label for _, label in part)


def _elements(node: Node) -> list[tuple[Node, str]]:
    """Return the parts of a pattern that follow each other, with what the user would call them."""
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
    """Return the columns that the fields make. Raises OptionError for a name that is reserved."""
    return hr.Schema.of(fields_of(programs))
