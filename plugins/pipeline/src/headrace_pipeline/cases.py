"""The tests in a pipeline file: what its sources give, and what its sinks must get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.flow.dead_letters import dead_letter_schema
from headrace.foundation.errors import did_you_mean

from headrace_pipeline.document import Items, Scalar, Section, Value, is_nothing
from headrace_pipeline.keys import CASE, LETTER, check_section

#: Columns of a dead letter that a case may compare, beside ``line``: the body as text.
LETTER_COLUMNS = frozenset((*(key.name for key in LETTER), *dead_letter_schema())) - {"body", "preview"}


@dataclass(frozen=True)
class Case:
    """One test. Rows and letters are read when the columns are known."""

    name: str
    section: Section
    #: By source: rows, which are keys and values, or lines.
    given: Mapping[str, Value]
    #: By sink: the rows that it must get.
    rows: Mapping[str, list[Section]]
    #: The dead letters, or how many there are.
    letters: list[Section] | int
    variables: Mapping[str, str]

    @property
    def line(self) -> int:
        """Where the case begins, from 1."""
        return self.section.place.line + 1


def cases_of(root: Section) -> list[Case]:
    """Return the cases of a pipeline file. Raises PipelineError for a case with an error, and for one that expects nothing."""
    given = root.get("cases")
    if given is None or is_nothing(given):
        return []
    ends = {kind: list(root.required(kind, of="a pipeline").section().entries) for kind in ("sources", "sinks")}
    cases: list[Case] = []
    for each in given.items():
        case = _case(each.section(), ends["sources"], ends["sinks"])
        if case.name in {other.name for other in cases}:
            place = next(other.line for other in cases if other.name == case.name)
            each.fail(
                f"two cases have the name {case.name!r}", option="name", hint=f"the other one begins in line {place}"
            )
        cases.append(case)
    return cases


def _case(section: Section, sources: list[str], sinks: list[str]) -> Case:
    check_section(section, CASE, of="a case")
    name = section.required("name", of="a case").text()
    out, letters, variables = section.get("out"), section.get("dead_letters"), section.get("variables")
    rows = {} if out is None else _by_name(out, sinks, "sink")
    if not rows and letters is None:
        section.fail(
            f"the case {name!r} expects nothing", option="out",
            hint="say which rows a sink gets (out: {SINK: []} for none), or which dead_letters there are",
        )  # fmt: skip
    return Case(
        name=name,
        section=section,
        given=_by_name(section.required("in", of=f"the case {name!r}"), sources, "source"),
        rows={sink: [each.section() for each in value.items()] for sink, value in rows.items()},
        letters=_letters(letters),
        variables={} if variables is None else _texts(variables.section()),
    )


def _by_name(value: Value, known: list[str], what: str) -> dict[str, Value]:
    found = {}
    for name, entry in value.section().entries.items():
        if name not in known:
            hint = did_you_mean(name, known, known=f"{what}s")
            entry.key.fail(f"the pipeline has no {what} {name!r}", option=name, hint=hint)
        found[name] = entry.value
    return found


def _letters(value: Value | None) -> list[Section] | int:
    if value is None:
        return 0
    if isinstance(value, Scalar) and isinstance(value.value, int) and not isinstance(value.value, bool):
        return value.value
    if not isinstance(value, Items):
        value.fail(f"expected a list of dead letters or their number, found {value.kind}", option="dead_letters")
    letters = [each.section() for each in value.items()]
    for each in letters:
        each.check_keys(LETTER_COLUMNS, of="a dead letter")
        if not each.entries:
            each.fail("a dead letter needs something that is compared", option="reason")
    return letters


def _texts(section: Section) -> dict[str, str]:
    found = {}
    for name, entry in section.entries.items():
        if not isinstance(entry.value, Scalar):
            entry.value.fail(f"expected a text, found {entry.value.kind}", option=name)
        found[name] = entry.value.source
    return found
