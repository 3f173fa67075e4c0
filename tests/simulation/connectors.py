"""Histories whose rows go through the connectors of headrace: their sinks unchanged, over simulated servers."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.simulation.histories import History, history_of
from tests.simulation.inputs import BROKERS
from tests.simulation.instances import SharedHistory, run_shared, shared_history_of
from tests.simulation.jobs_beside import ALL_SHAPES
from tests.simulation.outputs import CONNECTORS
from tests.simulation.running import run
from tests.simulation.starting import Outcome


def connector_history_of(seed: int) -> History | SharedHistory:
    """Return the history of a seed: of one instance, or of several."""
    random = Random(f"connector {seed}")
    history: History | SharedHistory = shared_history_of(seed) if seed % 2 else history_of(seed)
    sink = random.choice(CONNECTORS)
    # Changes of a key need a sink that leaves older ones out: by positions in its transaction, or by versions.
    if ALL_SHAPES[history.shape].changes and sink != "elasticsearch":
        sink = "mysql"
    if isinstance(history, SharedHistory):
        history = replace(history, sink=sink, broker=random.choice(BROKERS))
        if history.broker != "memory" and random.random() < 0.2:
            # Clients give a request up after seconds, and what they do then is a matter of its own.
            begin = random.randrange(2_500_000)
            history = replace(
                history, away={**history.away, "broker": ((begin, begin + random.randrange(4_000_000, 20_000_000)),)}
            )
        return history
    return replace(history, sink=sink)


def run_connector(history: History | SharedHistory) -> Outcome:
    """Run a history."""
    return run(history) if isinstance(history, History) else run_shared(history)
