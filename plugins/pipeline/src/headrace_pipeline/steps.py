"""What the steps of a pipeline do: each is a verb of the DSL."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import headrace as hr
from headrace.foundation.errors import JobError, did_you_mean
from headrace.interfaces.registry import default_registry

from headrace_pipeline.document import Items, Section, Value
from headrace_pipeline.keys import STEP, Key
from headrace_pipeline.placing import placed

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
    """A verb: what makes its stream, what its value looks like, and what it does."""

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
    patterns = section.required("grok", of="parse")
    with placed(patterns):
        known = options_of(default_registry().find("operator", "grok"))
    section.check_keys(["grok", *(name for name in known if name != "patterns")], of="parse")
    options = {key: entry.value.plain() for key, entry in section.entries.items() if key != "grok"}
    return step.stream.operator("grok", patterns.texts(), **options)


def _union(step: Step) -> hr.Stream:
    return step.stream.union(*(step.named(each) for each in step.value.items()))


VERBS: Mapping[str, Verb] = {
    "parse": Verb(_parse, "keys", "takes columns out of a column of texts, by grok patterns", (
        Key("grok", "pattern or list", "patterns; the first that fits counts", required=True),
        Key("on", "column", "the column of texts; default: `message`"),
    )),
    "where": Verb(_where, "expression", "keeps rows for which the condition is true"),
    "select": Verb(_columns, "list of columns, or names and expressions", "keeps only these columns"),
    "with_columns": Verb(_columns, "names and expressions", "adds or replaces columns"),
    "drop": Verb(_drop, "column or list", "removes columns"),
    "rename": Verb(_rename, "old and new names", "renames columns"),
    "script": Verb(_script, "text", "assignments and conditions, one after the other"),
    "union": Verb(_union, "list of names", "adds the rows of other sources, steps or outputs with the same columns"),
}  # fmt: skip


def options_of(spec: type) -> list[str]:
    """Return the arguments that an operator takes, without the functions that the DSL gives it."""
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
    if not isinstance(value, Section):
        given: Any = value.plain()
        arguments = given if isinstance(given, list) else [] if given is None else [given]
        return step.stream.operator(step.verb, *arguments)
    spec = default_registry().find("operator", step.verb)
    value.check_keys(options_of(spec), of=f"the step {step.verb!r}")
    try:
        return step.stream.operator(step.verb, **value.plain())
    except (TypeError, ValueError) as error:
        raise JobError(f"{step.verb}: {error}", plugin=step.verb) from error
