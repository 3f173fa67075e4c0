"""What the steps of a pipeline do: each is a verb of the DSL."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import headrace as hr
from headrace.foundation.errors import JobError, did_you_mean
from headrace.interfaces.operator import OperatorSpec, StatefulSpec
from headrace.interfaces.registry import default_registry
from headrace.interfaces.settings import describe_options

from headrace_pipeline.connectors import schema_of
from headrace_pipeline.document import Items, Section, Value, is_nothing
from headrace_pipeline.keys import STEP, Key, check_section
from headrace_pipeline.placing import placed

#: How the verb ``rules`` names a rule that did not come from a file: by its place in the list.
_RULE = re.compile(r"^  rule (?:'[^\n]*' \(rule (\d+)\)|(\d+)): ", re.MULTILINE)

#: Verbs that plug-ins offer, and that take functions of Python or whole streams.
_OF_PYTHON = frozenset(
    ("map", "flat_map", "map_batches", "filter", "for_each", "reduce", "process", "join", "lookup_join", "split")
)


@dataclass(frozen=True)
class Step:
    """A step at work: its value, the stream that it reads, and all streams that have a name."""

    verb: str
    value: Value
    stream: hr.Stream
    named: Callable[[Value], hr.Stream]


@dataclass(frozen=True)
class Verb:
    """A verb: the function that makes its stream, the form of its value, and a description."""

    make: Callable[[Step], hr.Stream]
    form: str
    meaning: str
    keys: tuple[Key, ...] = ()


def _where(step: Step) -> hr.Stream:
    return step.stream.where(step.value.expression())


def _columns(step: Step) -> hr.Stream:
    """Append ``select`` or ``with_columns``: a list of expressions, or names and expressions."""
    if isinstance(step.value, Section):
        named = {name: entry.value.expression() for name, entry in step.value.entries.items()}
        if not named:
            step.value.fail(f"{step.verb} needs a column")
        return step.stream.operator(step.verb, **named)
    columns = [each.expression() for each in step.value.items()] if isinstance(step.value, Items) else []
    if not columns:
        step.value.fail(
            f"{step.verb} needs a list of columns, or names and expressions", hint="[host, lower(path) AS path]"
        )
    return step.stream.operator(step.verb, *columns)


def _drop(step: Step) -> hr.Stream:
    return step.stream.drop(*step.value.texts())


def _rename(step: Step) -> hr.Stream:
    return step.stream.rename({old: entry.value.text() for old, entry in step.value.section().entries.items()})


def _script(step: Step) -> hr.Stream:
    return step.stream.script(step.value.text())


def _parse(step: Step) -> hr.Stream:
    section = step.value.section()
    if section.get("format") is not None:
        return _parse_format(step, section)
    patterns = section.get("grok")
    if patterns is None:
        section.fail("parse needs grok: PATTERN or format: NAME", option="grok")
    with placed(patterns):
        known = options_of(default_registry().find("operator", "grok"))
    section.check_keys(["grok", *(name for name in known if name != "patterns")], of="parse")
    options = {key: entry.value.plain() for key, entry in section.entries.items() if key != "grok"}
    return step.stream.operator("grok", patterns.texts(), **options)


def _parse_format(step: Step, section: Section) -> hr.Stream:
    """Decode a column of texts by a format; its options stand beside."""
    named = section.required("format", of="parse")
    with placed(named):
        declared = describe_options(default_registry().find("codec", named.text()).Settings)
    section.check_keys(["format", "on", "schema", *(option.name for option in declared)], of="parse")
    options = {
        key: schema_of(entry.value) if key == "schema" else entry.value.plain()
        for key, entry in section.entries.items()
    }
    return step.stream.operator("parse_format", options.pop("format"), **options)


def _union(step: Step) -> hr.Stream:
    return step.stream.union(*(step.named(each) for each in step.value.items()))


def _lookup(step: Step) -> hr.Stream:
    section = step.value.section()
    check_section(section, VERBS["lookup"].keys, of="lookup")
    table = step.named(section.required("table", of="lookup"))
    options = {key: entry.value.plain() for key, entry in section.entries.items() if key != "table"}
    return step.stream.operator("lookup_join", table, **options)


def _rules(step: Step) -> hr.Stream:
    """Test rows against rules: those of a file, or those that stand here."""
    if not isinstance(step.value, Section):
        return step.stream.operator("rules", step.value.text())
    section = step.value
    known = [name for name in options_of(default_registry().find("operator", "rules")) if name != "rules"]
    section.check_keys(["file", "inline", *known], of="rules")
    file, inline = section.get("file"), section.get("inline")
    if (file is None) == (inline is None):
        section.fail("rules come from one place: file: NAME or inline: RULES", option="file")
    rules = file.text() if file is not None else inline.plain() if inline is not None else None
    options = {key: entry.value.plain() for key, entry in section.entries.items() if key not in ("file", "inline")}
    try:
        return step.stream.operator("rules", rules, **options)
    except JobError as error:
        if inline is not None:
            _fail_at_rule(inline, error)
        raise


def _fail_at_rule(inline: Value, error: JobError) -> None:
    """Raise the error at the first of the rules in place that is wrong, if its message says which."""
    named = _RULE.search(error.message)
    if named is None:
        return
    rules = [entry.value for entry in inline.entries.values()] if isinstance(inline, Section) else list(inline.items())
    place = rules[int(named[1] or named[2]) - 1].place
    raise inline.error(error.message, hint=error.hint, plugin="rules", place=place) from None


def _aggregate(step: Step) -> hr.Stream:
    section = step.value.section()
    check_section(section, VERBS["aggregate"].keys, of="aggregate")
    columns = {
        name: entry.value.expression()
        for name, entry in section.required("columns", of="aggregate").section().entries.items()
    }
    keyed = _keyed(step.stream, section.get("by"))
    given, ttl = section.get("window"), section.get("ttl")
    if ttl is not None:
        keyed = keyed.ttl(ttl.text())
    if given is None:
        for key in ("late", "emit"):
            if key in section.entries:
                section.entries[key].key.fail(
                    "belongs to a window", option=key, hint="window: {tumbling: 1 min, on: COLUMN}"
                )
        return keyed.agg(**columns)
    late, emit = section.get("late"), section.get("emit")
    windowed = keyed.window(
        _window(given.section()),
        late=None if late is None else late.text(),
        emit=None if emit is None else _emit(emit.section()),
    )
    return windowed.agg(**columns)


def _keyed(stream: hr.Stream, by: Value | None) -> hr.KeyedStream:
    if isinstance(by, Section):
        return stream.key_by(**{name: entry.value.expression() for name, entry in by.entries.items()})
    return stream.key_by(*([] if by is None else by.texts()))


def _window(section: Section) -> hr.Window:
    """Return the window of ``{tumbling: 10 s, on: at}``, ``{sliding: 1 min, every: 10 s, on: at}`` and so on."""
    kinds: Mapping[str, Callable[..., hr.Window]] = {
        "tumbling": hr.tumbling, "sliding": hr.sliding, "cumulative": hr.cumulative, "session": hr.session,
    }  # fmt: skip
    named = [key for key in section.entries if key in kinds]
    if len(named) != 1:
        section.fail("a window is of one kind", hint=f"kinds: {', '.join(kinds)}", option="window")
    kind = kinds[named[0]]
    section.check_keys([named[0], *list(inspect.signature(kind).parameters)[1:]], of=f"a {named[0]} window")
    options = {key: entry.value.text() for key, entry in section.entries.items() if key != named[0]}
    if "every" in inspect.signature(kind).parameters and "every" not in options:
        section.fail(f"a {named[0]} window needs the key 'every'", option="every")
    with placed(section):
        return kind(section.entries[named[0]].value.text(), **options)


def _emit(section: Section) -> hr.Emit:
    section.check_keys(list(inspect.signature(hr.emit).parameters), of="emit")
    with placed(section):
        return hr.emit(**{key: entry.value.text() for key, entry in section.entries.items()})


def _route(step: Step) -> hr.Stream:
    raise AssertionError("a route gives several streams: see outputs_of")


def outputs_of(step: Step) -> Mapping[Value, hr.Stream]:
    """Return the streams of a route, by the places of their names. Raises PipelineError."""
    section = step.value.section()
    check_section(section, VERBS["route"].keys, of="route")
    outputs = section.required("outputs", of="route").section()
    conditions = {name: entry.value.expression() for name, entry in outputs.entries.items()}
    with placed(outputs):
        branches = step.stream.split(**conditions)
    found: dict[Value, hr.Stream] = {entry.key: branches[name] for name, entry in outputs.entries.items()}
    default = section.required("default", of="route")
    if not is_nothing(default):
        default.text()
        found[default] = branches["rest"]
    return found


VERBS: Mapping[str, Verb] = {
    "parse": Verb(_parse, "keys", "takes columns out of a column of texts, by grok patterns or by a format", (
        Key("grok", "pattern or list", "patterns; the first that fits counts"),
        Key("format", "text", "instead of `grok`: how the texts become columns; its options stand beside it"),
        Key("schema", "columns and types", "of the format"),
        Key("on", "column", "the column of texts; default: `message`"),
    )),
    "where": Verb(_where, "expression", "keeps rows for which the condition is true"),
    "select": Verb(_columns, "list of columns, or names and expressions", "keeps only these columns"),
    "with_columns": Verb(_columns, "names and expressions", "adds or replaces columns"),
    "drop": Verb(_drop, "column or list", "removes columns"),
    "rename": Verb(_rename, "old and new names", "renames columns"),
    "script": Verb(_script, "text", "assignments and conditions, one after the other"),
    "union": Verb(_union, "list of names", "adds the rows of other sources, steps or outputs with the same columns"),
    "lookup": Verb(_lookup, "keys", "joins each row with the rows of a table", (
        Key("table", "name", "a source that has an end, or a step behind it", required=True),
        Key("on", "column, list, or columns and table columns", "what is compared", required=True),
        Key("how", "`inner` or `left`", "`left` keeps rows without a match; default: `inner`"),
        Key("match", "`equal`, `range` or `prefix`", "`range`: `on: {port: [low, high]}`; `prefix`: networks of addresses"),
        Key("refresh", "duration", "the table is loaded again after this time"),
        Key("suffix", "text", "put on columns of the table whose names are taken; default: `_right`"),
        Key("threads", "number", "how many queues of the table are loaded side by side"),
    )),
    "rules": Verb(_rules, "a file, or keys", "tests rows against rules", (
        Key("file", "text", "a file, a pattern of names or a directory"),
        Key("inline", "list of rules, or ids and expressions", "the rules themselves"),
    )),
    "aggregate": Verb(_aggregate, "keys", "aggregates by key, in windows or as running results", (
        Key("columns", "names and aggregates", "`n: count(*)`, `total: sum(amount)`", required=True),
        Key("by", "column, list, or names and expressions", "the key; default: all rows have one key"),
        Key("window", "keys", "see [below](#windows)"),
        Key("late", "duration", "how much older than the newest row a row may be without being late"),
        Key("emit", "keys", "results before and after the final one: `before`, `after`, `until`"),
        Key("ttl", "duration", "without a window: how long a key without rows is remembered"),
    )),
    "route": Verb(_route, "keys", "sends each row to the first output whose condition is true", (
        Key("outputs", "names and conditions", "later steps and sinks read them: `from: NAME`", required=True),
        Key("default", "name, or `null`", "the output of all other rows; `null`: they are left out", required=True),
    )),
}  # fmt: skip


def options_of(spec: type[OperatorSpec]) -> list[str]:
    """Return the arguments that an operator takes, without the functions and the stream that the DSL gives it."""
    if spec.is_composed:
        return [name for name in list(inspect.signature(spec.of_stream).parameters)[1:] if name != "functions"]
    return [name for name in inspect.signature(spec).parameters if name != "functions"]


def append(step: Step) -> hr.Stream:
    """Return the stream behind a step. Raises PipelineError with the place in the file."""
    with placed(step.value):
        verb = VERBS.get(step.verb)
        return verb.make(step) if verb is not None else _of_plugin(step)


def verb_of(section: Section) -> str:
    """Return the verb of a step: its one key beside ``from`` and ``as``. Raises PipelineError."""
    found = [key for key in section.entries if key not in {key.name for key in STEP}]
    if not found:
        section.fail("the step says not what to do", hint=f"verbs: {', '.join(VERBS)}")
    for key in found:
        if key in VERBS or (key not in _OF_PYTHON and default_registry().has("operator", key)):
            continue
        entry = section.entries[key]
        if key in _OF_PYTHON:
            entry.key.fail(f"{key!r} takes what only Python can give", option=key, hint="write the job in Python")
        hint = did_you_mean(key, [*VERBS, *(each.name for each in STEP)], known="verbs")
        entry.key.fail(f"a step has no key {key!r}", option=key, hint=hint)
    if len(found) > 1:
        section.entries[found[1]].key.fail(
            f"a step does one thing, and this one has {found[0]!r} and {found[1]!r}",
            hint="begin each step with a dash", option=found[1],
        )  # fmt: skip
    return found[0]


def _of_plugin(step: Step) -> hr.Stream:
    """Append an operator that a plug-in offers: keys are its arguments by name, a list or a text those in front."""
    value = step.value
    spec = default_registry().find("operator", step.verb)
    if issubclass(spec, StatefulSpec) and not spec.is_composed:
        return _keyed_of_plugin(step, spec)
    if not isinstance(value, Section):
        given: Any = value.plain()
        arguments = given if isinstance(given, list) else [] if given is None else [given]
        return step.stream.operator(step.verb, *arguments)
    value.check_keys(options_of(spec), of=f"the step {step.verb!r}")
    try:
        return step.stream.operator(step.verb, **value.plain())
    except (TypeError, ValueError, AttributeError) as error:  # a value of another type than the operator expects
        raise JobError(f"{step.verb}: {error}", plugin=step.verb) from error


def _keyed_of_plugin(step: Step, spec: type[OperatorSpec]) -> hr.Stream:
    """Append an operator with state that a plug-in offers: ``by`` is its key, the other keys are its arguments by name."""
    section = step.value.section()
    by = section.required("by", of=f"the step {step.verb!r}")
    # A spec gets the names of the keys first.
    section.check_keys(["by", *options_of(spec)[1:]], of=f"the step {step.verb!r}")
    given = {name: entry.value.plain() for name, entry in section.entries.items() if name != "by"}
    try:
        made: hr.Stream = getattr(_keyed(step.stream, by), step.verb)(**given)
    except (TypeError, ValueError, AttributeError) as error:  # a value of another type than the operator expects
        raise JobError(f"{step.verb}: {error}", plugin=step.verb) from error
    return made
