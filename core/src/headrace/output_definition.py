"""What the rows of an output are made by: remembered by outputs, so that another job's rows are never taken for a replay of them.

A sink that keeps positions drops rows at or before them. That is right when the same job is run again, and wrong when it was edited:
then its new rows would vanish. A backend tells every sink of its definition before anything is read (``tell_outputs``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import JobError
from headrace.state_definition import Difference, Verdict, difference_table

if TYPE_CHECKING:
    from headrace.messages import Queue, ReadPosition
    from headrace.plan import Plan

REPLACE_HINT = "replace_output=True (--replace-output) removes what is there first, where the output can; or name another place or writer"


@dataclass(frozen=True, slots=True)
class InputRead:
    """What a run that began anew has read, from the beginning to the end of its input: tells one input from another.

    Records are known by queue and offset, as everywhere; ``digest`` is of the place of each queue's first and last record, and of
    the number of shards.
    """

    queues: int
    records: int
    digest: str

    @classmethod
    def of(cls, ranges: Mapping[Queue, tuple[ReadPosition, int]], shards: Mapping[str, int]) -> InputRead:
        """Return what was read of each queue: from a position to before an offset."""
        listed = [[queue.source, queue.name, begin.to_json(), end] for queue, (begin, end) in sorted(ranges.items())]
        records = sum(end - begin.offset for begin, end in ranges.values())
        return cls(len(listed), records, digest_of({"queues": listed, "shards": dict(shards)}))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; ``from_json`` reads it."""
        return {"queues": self.queues, "records": self.records, "digest": self.digest}

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> InputRead | None:
        """Read what ``to_json`` gave. Raises KeyError, ValueError or TypeError when it is something else."""
        return None if value is None else cls(int(value["queues"]), int(value["records"]), str(value["digest"]))

    def __str__(self) -> str:
        return f"{self.records:,} records of {self.queues:,} queue{'' if self.queues == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class OutputDefinition:
    """What makes the rows of one output, and how this start of the job stands to what is there; for ``Sink.adopt``.

    ``definition`` is of JSON values; ``digest`` tells it from others. ``continued``: the digest under which the checkpoint that the
    job goes on from wrote to this output; None: it begins anew. ``elsewhere`` tells whether consumer groups keep how far the job is, so
    that an edited job goes on too; it may raise RetriableError. ``repeats_results``: the job has keyed stages and begins anew, so
    all its results come again, under new positions. ``replace``: what is there is to be removed first.
    """

    definition: Mapping[str, Any]
    digest: str
    continued: str | None = None
    repeats_results: bool = False
    replace: bool = False
    elsewhere: Callable[[], bool] = bool

    def goes_on(self, stored_digest: str, earlier: Collection[str] = ()) -> bool:
        """Return whether the rows that an output remembers are this job's own.

        ``earlier``: definitions under which the same checkpoint wrote there before. A start that failed behind ``adopt`` has
        left its own digest as the newest.
        """
        return (
            stored_digest == self.digest
            or (self.continued is not None and self.continued in {stored_digest, *earlier})
            or self.elsewhere()
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


def tell_outputs(
    plan: Plan, stored: Mapping[str, str] | None, *, begins: bool, replace: bool, elsewhere: Callable[[], bool] = bool
) -> dict[str, InputRead]:
    """Tell each sink what makes its rows. Called by backends when sinks are prepared, before anything is read.

    ``stored``: the digests that the checkpoint holds which the job goes on from; None: there is none. ``begins``: whether the keyed stages
    begin with nothing, so that their results come again. ``elsewhere`` tells whether consumer groups keep how far the job is. Returns
    the sinks that have all results of this job over an input, with that input: see ``check_same_input``. Raises JobError where an output
    holds rows of another job, or results that would be there twice.
    """
    if replace and stored is not None:
        raise JobError(
            "the job goes on from its checkpoint: rows of before would be removed and not made again",
            job=plan.job_name,
            option="replace_output",
            hint="begin anew with another checkpoint directory, or leave replace_output out",
        )
    known = {}
    keyed = keyed_outputs(plan)
    for name, digest in plan.output_digests.items():
        sink, definition = plan.sinks[name].sink, plan.output_definitions[name]
        continued = None if stored is None else stored.get(name, digest)
        # Where each definition of the job has a name of its own what others have written stays.
        own = replace and not sink.names_writer_by_definition
        repeats = begins and name in keyed
        read = sink.adopt(OutputDefinition(definition, digest, continued, repeats, own, elsewhere))
        if read is not None:
            known[name] = read
    return known


def check_same_input(plan: Plan, known: Mapping[str, InputRead], now: InputRead | None) -> None:
    """See that outputs which have all results over an input have those of the input of now: then the same results come, and are dropped.

    ``now``: what the run is going to read; None: that is not known, as it does not end with its input. Raises JobError.
    """
    for name, before in known.items():
        if before != now:
            there = "does not end with its input" if now is None else f"reads {now}"
            if now is not None and (now.queues, now.records) == (before.queues, before.records):
                there = "reads as many of others (or divides them among other shards)"
            raise JobError(
                f"{name!r} has the results of an earlier run of this job, over {before}, and this one {there}. Without a checkpoint "
                "all results are made again under other numbers, and would be there twice",
                job=plan.job_name,
                plugin=name,
                hint=REPLACE_HINT + "; or give the job a checkpoint, from which later runs go on",
            )


def tell_completed(plan: Plan, read: InputRead) -> None:
    """Tell the outputs of keyed stages that a run which began anew has come to the end of its input, and all is stored."""
    for name in keyed_outputs(plan):
        plan.sinks[name].sink.completed(read)


def keyed_outputs(plan: Plan) -> list[str]:
    """Return the sinks that have results of keyed stages, without those of dead letters."""
    bad = plan.dead_letters_id
    behind = set() if bad is None else set(plan.reachable(plan.nodes[bad]))
    return [name for name in plan.sinks if name not in behind and _is_behind_shuffle(plan, name)]


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
