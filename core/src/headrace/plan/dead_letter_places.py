"""Where the dead letters of a job go, for reports and errors."""

from __future__ import annotations

from headrace.plan.explain import changed_options
from headrace.plan.graph import Plan


def dead_letter_places(plan: Plan) -> tuple[str, ...]:
    """Return where the dead letters of a job go: for each sink its name and main options, such as its path."""
    if plan.dead_letters_id is None:
        return ()
    behind = plan.reachable(plan.nodes[plan.dead_letters_id])
    places = []
    for name, node in plan.sinks.items():
        if name in behind:
            options = changed_options(node.sink.settings)
            first = next(iter(options.items()), None)
            places.append(f"{name} ({first[0]} {first[1]})" if first else name)
    return tuple(places)
