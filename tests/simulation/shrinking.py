"""Makes a history that breaks a rule smaller: fewer faults, fewer records, fewer things that could matter, as long as a rule is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.simulation.starting import Outcome

#: What a simpler history has, of the fields that both kinds of histories may have.
_SIMPLER: dict[str, Any] = {
    "lossy": 0.0, "away": {}, "jumps": (), "failing": 0.0, "slow": 0.0, "full_until_us": 0, "trims": False, "journal": True, "preempt": 0.0,
    "instances": 1,
}  # fmt: skip
_SIMPLER_OPTIONS = {"shards": 1, "max_batch_records": 100, "batch_size": 100, "max_cached_rows": 100_000}


def shrink(history: Any, run: Callable[[Any], Outcome], *, runs_max: int = 300) -> Outcome:
    """Return the outcome of the smallest history that was found. ``history`` must break a rule."""
    best = run(history)
    assert best.wrong, "nothing is wrong with it"
    runs = 1
    found = True
    while found and runs < runs_max:
        found = False
        for smaller in _smaller(best.history):
            if runs >= runs_max:
                break
            runs += 1
            outcome = run(smaller)
            if outcome.wrong:
                best, found = outcome, True
                break
    return best


def _smaller(history: Any) -> Iterator[Any]:
    """Yield histories that have one thing less, the largest things first."""
    name = "faults" if hasattr(history, "faults") else "events"
    faults = getattr(history, name)
    for at in range(len(faults)):
        yield replace(history, **{name: (*faults[:at], *faults[at + 1 :])})
    if hasattr(history, "plan"):
        yield from (replace(history, plan=plan) for plan in _fewer_choices(history.plan))
    else:
        yield from (replace(history, input=given) for given in _fewer_records(history.input))
    for field, value in _SIMPLER.items():
        if getattr(history, field, value) != value and not (
            field == "instances" and any(each.instance for each in faults)
        ):
            yield replace(history, **{field: value})
    for option, value in _SIMPLER_OPTIONS.items():
        if history.options[option] != value:
            yield replace(history, options={**history.options, option: value})
    for at, fault in enumerate(faults):
        for count in {1, fault.count // 2} - {0, fault.count}:
            yield replace(history, **{name: (*faults[:at], replace(fault, count=count), *faults[at + 1 :])})


def _fewer_choices(plan: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield choices without some of them, and with a simpler one (see tests/differential/choices.py)."""
    size = len(plan) // 2
    while size:
        yield from ((*plan[:at], *plan[at + size :]) for at in range(0, len(plan) - size + 1, size))
        size //= 2
    yield from ((*plan[:at], 0, *plan[at + 1 :]) for at in range(len(plan)) if plan[at])


def _fewer_records(given: Any) -> Iterator[Any]:
    """Yield inputs without a queue, without half of one, and without one record. One queue of each source stays, and one record."""
    for source, queues in given.items():
        if len(queues) > 1:
            for left_out in queues:
                yield {**given, source: {name: records for name, records in queues.items() if name != left_out}}
    for size in (2, 1):
        for source, queues in given.items():
            for name, records in queues.items():
                step = max(1, len(records) // 2) if size == 2 else 1
                for begin in range(0, len(records), step) if len(records) > 1 else ():
                    kept = [*records[:begin], *records[begin + step :]]
                    if kept:
                        yield {**given, source: {**queues, name: kept}}
