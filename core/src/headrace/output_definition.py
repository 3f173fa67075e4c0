"""What the rows of an output are made by: remembered by outputs, so that another job's rows are never taken for a replay of them.

A sink that keeps positions drops rows at or before them. That is right when the same job is run again, and wrong when it was edited:
then its new rows would vanish. A backend tells every sink of its definition before anything is read (``tell_outputs``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import JobError
from headrace.state_definition import Difference, Verdict, difference_table

if TYPE_CHECKING:
    from headrace.plan import Plan


@dataclass(frozen=True, slots=True)
class OutputDefinition:
    """What makes the rows of one output, and how this start of the job stands to what is there; for ``Sink.adopt``.

    ``definition`` is of JSON values; ``digest`` tells it from others. ``continued``: the digest under which the checkpoint that the
    job goes on from wrote to this output; None: it begins anew. ``repeats_results``: the job has keyed stages and no checkpoint, so all
    its results come again, under new positions. ``replace``: what is there is to be removed first.
    """

    definition: Mapping[str, Any]
    digest: str
    continued: str | None = None
    repeats_results: bool = False
    replace: bool = False

    def goes_on(self, stored_digest: str, earlier: Collection[str] = ()) -> bool:
        """Return whether the rows that an output remembers are this job's own.

        ``earlier``: definitions under which the same checkpoint wrote there before. A start that failed behind ``adopt`` has
        left its own digest as the newest.
        """
        return stored_digest == self.digest or (
            self.continued is not None and self.continued in {stored_digest, *earlier}
        )

    def difference_from(self, stored: Mapping[str, Any]) -> str:
        """Return how this definition differs from one that an output remembers, as lines of a table."""
        one, other = _flat(stored), _flat(self.definition)
        found = [
            Difference(name, one.get(name), other.get(name), Verdict.REFUSED)
            for name in sorted({*one, *other})
            if one.get(name) != other.get(name)
        ]
        return difference_table(found)


def output_definitions(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return what makes the rows of each sink, as JSON values. Dead letters come from the whole job."""
    from headrace.state_inputs import origins_of_sinks

    bad = plan.dead_letters_id
    behind = set() if bad is None else set(plan.reachable(plan.nodes[bad]))
    states = {name: defined.to_json() for name, defined in plan.state_definitions.items()}
    main = {name: origin for name, origin in origins_of_sinks(plan).items() if name not in behind}
    made: dict[str, dict[str, Any]] = {}
    for name in plan.sinks:
        rows: Mapping[str, Any] = {"of": main[name]} if name in main else dict(main)
        known = _states_in(rows, states)
        made[name] = {"rows": rows, "states": {each: states[each] for each in sorted(known)}}
    return made


def digest_of(definition: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits that are the same for the same definition."""
    text = json.dumps(definition, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def tell_outputs(plan: Plan, stored: Mapping[str, str] | None, *, keeps: bool, replace: bool) -> None:
    """Tell each sink what makes its rows. Called by backends when sinks are prepared, before anything is read.

    ``stored``: the digests that the checkpoint holds which the job goes on from; None: there is none. ``keeps``: whether the job has a
    checkpoint at all. Raises JobError where an output holds rows of another job.
    """
    if replace and stored is not None:
        raise JobError(
            "the job goes on from its checkpoint: rows of before would be removed and not made again",
            job=plan.job_name,
            option="replace_output",
            hint="begin anew with another checkpoint directory, or leave replace_output out",
        )
    bad = plan.dead_letters_id
    behind = set() if bad is None else set(plan.reachable(plan.nodes[bad]))
    for name, digest in plan.output_digests.items():
        sink, definition = plan.sinks[name].sink, plan.output_definitions[name]
        continued = None if stored is None else stored.get(name, digest)
        repeats = not keeps and name not in behind and _is_behind_shuffle(plan, name)
        # Where each definition of the job has a name of its own what others have written stays.
        own = replace and not sink.names_writer_by_definition
        sink.adopt(OutputDefinition(definition, digest, continued, repeats, own))


def _is_behind_shuffle(plan: Plan, sink: str) -> bool:
    return any(sink in plan.reachable(node) for node in plan.shuffles.values())


def _states_in(value: Any, states: Mapping[str, Any]) -> set[str]:
    """Return the operators with state that rows come from, and those that these come from."""
    found: set[str] = set()
    waiting: list[Any] = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            name = each.get("state")
            if isinstance(name, str) and name in states and name not in found:
                found.add(name)
                waiting.append(states[name])
            waiting += each.values()
        elif isinstance(each, list | tuple):
            waiting += each
    return found


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Return nested JSON values as texts by their paths."""
    if isinstance(value, Mapping):
        found: dict[str, str] = {}
        for name, each in value.items():
            found |= _flat(each, f"{prefix}.{name}" if prefix else str(name))
        return found
    if isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
        found = {}
        for place, each in enumerate(value):
            found |= _flat(each, f"{prefix}.{place + 1}")
        return found
    texts = [value] if isinstance(value, str) else value
    is_text = isinstance(texts, list | tuple) and all(isinstance(each, str) for each in texts)
    text = " and ".join(texts) if is_text else json.dumps(value, default=str)
    return {prefix.removeprefix("rows.of.").removeprefix("states."): text} if value not in (None, [], {}) else {}
