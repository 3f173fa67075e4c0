"""A partition of a group that is opened again without a rebalance gives its records again."""

from __future__ import annotations

from tests.simulation.connectors import connector_history_of, run_connector
from tests.simulation.warming import warm


def test_a_shard_that_begins_again_reads_from_where_it_begins() -> None:
    """A request for a part of its state was lost while it had records, which its consumer does not give a second time by itself."""
    warm()
    outcome = run_connector(connector_history_of(101947))
    assert not outcome.wrong, "\n".join(outcome.wrong)
