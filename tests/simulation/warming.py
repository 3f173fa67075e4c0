"""What the first histories of a process would do and later ones not: import modules and fill caches, which passes seams."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

from tests.simulation.histories import history_of
from tests.simulation.instances import run_shared, shared_history_of
from tests.simulation.jobs import make_input
from tests.simulation.jobs_beside import ALL_SHAPES
from tests.simulation.running import run
from tests.simulation.workers import run_with_workers


@cache
def warm() -> None:
    """Run a history of each shape and sink. Called before histories whose traces are compared between processes."""
    for shape in ALL_SHAPES.values():
        given = make_input(Random(1), shape.sources, records_max=3, span_us=0, bad=True)
        for sink in ("file", "transactional"):
            if not (shape.changes and sink == "file"):
                run(replace(history_of(1), shape=shape.name, sink=sink, input=given, faults=()))
        run_with_workers(replace(history_of(1), shape=shape.name, sink="transactional", input=given, faults=()))
        run_shared(replace(shared_history_of(1), shape=shape.name, sink="transactional", input=given, events=()))
