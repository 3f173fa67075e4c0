"""A history that breaks a rule is made smaller, and can be read."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.diagrams import diagram
from tests.simulation.histories import Fault, history_of
from tests.simulation.mutations import MUTATIONS
from tests.simulation.running import run
from tests.simulation.shrinking import shrink


def size(history: object) -> int:
    queues = [records for given in history.input.values() for records in given.values()]  # type: ignore[attr-defined]
    return sum(map(len, queues))


def test_a_history_is_shrunk_to_what_matters() -> None:
    """When known rows are not dropped, a kill behind an insertion is enough; the other faults, and most records, are left out."""
    history = replace(
        history_of(131), shape="tumbling", sink="transactional", lossy=0.0, away={}, slow=0.2,
        faults=(Fault("kill", "open", 2), Fault("kill", "sink.after_insert", 1), Fault("stop", "s0", 9)),
    )  # fmt: skip
    with MUTATIONS["known rows not dropped"]():
        whole = run(history)
        assert whole.wrong
        small = shrink(history, run, runs_max=40)
    assert small.wrong
    assert len(small.history.faults) == 1
    assert size(small.history) < size(history)
    assert small.history.slow == 0.0
    text = diagram(small.trace)
    assert text.startswith("sequenceDiagram\n")
    assert "driver->>job_2: start" in text
    assert "table insert" not in text
    assert "->>table: insert" in text
    assert "killed!" in text
    assert not run(small.history).wrong
