"""The outputs of a plan: the definition of each output's rows, and the call of ``Sink.adopt`` before anything is read.

A backend tells every sink of its definition (``tell_outputs``), so that the rows of another job are never taken for a replay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from headrace.foundation.errors import JobError
from headrace.interfaces.output_definition import REPLACE_HINT, InputRead, OutputDefinition
from headrace.plan.graph import Plan
from headrace.plan.state_inputs import origins_of_sinks


def output_definitions(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return what makes the rows of each sink, as JSON values. Dead letters come from the whole job."""
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


def tell_outputs(
    plan: Plan, stored: Mapping[str, str] | None, *, begins: bool, replace: bool, elsewhere: Callable[[], bool] = bool
) -> dict[str, InputRead]:
    """Tell each sink what makes its rows. Called by backends when sinks are prepared, before anything is read.

    ``stored``: the digests in the checkpoint from which the job continues; None: no checkpoint. ``begins``: whether the keyed stages
    begin with nothing, so that their results come again. ``elsewhere`` tells whether consumer groups keep how far the job is. Returns
    the sinks that have all results of this job over an input, with that input: see ``check_same_input``. Raises JobError where an output
    holds rows of another job, or results that would be there twice.
    """
    if replace and stored is not None:
        raise JobError(
            "the job continues from its checkpoint, so rows from before the checkpoint would be removed and not written again",
            job=plan.job_name,
            option="replace_output",
            hint="start with another checkpoint directory, or leave replace_output out",
        )
    known = {}
    keyed = keyed_outputs(plan)
    for name, digest in plan.output_digests.items():
        sink, definition = plan.sinks[name].sink, plan.output_definitions[name]
        continued = None if stored is None else stored.get(name, digest)
        # If each definition of the job has its own name, rows of other definitions stay.
        own = replace and not sink.names_writer_by_definition
        own = own or (sink.replaces and stored is None and not elsewhere())
        repeats = begins and name in keyed
        read = sink.adopt(OutputDefinition(definition, digest, continued, repeats, own, elsewhere))
        if read is not None:
            known[name] = read
    return known


def check_same_input(plan: Plan, known: Mapping[str, InputRead], now: InputRead | None) -> None:
    """Check that outputs which have all results of an input have those of the present input: then the same results come
    again, and are dropped.

    ``now``: the input of this run; None: it is not known, because the run does not end with its input. Raises JobError.
    """
    for name, before in known.items():
        if before != now:
            there = "does not end with its input" if now is None else f"reads {now}"
            if now is not None and (now.queues, now.records) == (before.queues, before.records):
                there = "reads as many of others (or divides them among other shards)"
            raise JobError(
                f"{name!r} has the results of an earlier run of this job, over {before}, and this one {there}. Without a checkpoint this "
                "run writes all results again, under other numbers, so they would be stored twice",
                job=plan.job_name,
                plugin=name,
                hint=REPLACE_HINT + "; or give the job a checkpoint, from which later runs continue",
            )


def tell_completed(plan: Plan, read: InputRead, wait_for: Callable[[str, Callable[[], None]], None]) -> None:
    """Call ``completed`` of the outputs of keyed stages: a run without a checkpoint has reached the end of its input, and all is stored.

    ``wait_for`` repeats it for a sink whose server is not available (``Patience.wait_for``).
    """
    for name in keyed_outputs(plan):
        wait_for(f"the sink {name}", partial(plan.sinks[name].sink.completed, read))


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
