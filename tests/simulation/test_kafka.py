"""The source, the topics and the transactional sink of Kafka, unchanged, over simulated clients of confluent-kafka."""

from __future__ import annotations

from dataclasses import replace

import pytest
from headrace_kafka.topics import KafkaTopics

from tests.simulation import kafka
from tests.simulation.connectors import connector_history_of
from tests.simulation.inputs import BROKERS
from tests.simulation.instances import SharedHistory, run_shared, shared_history_of

_SEEDS = 6


@pytest.mark.parametrize("part", range(2))
def test_histories_over_kafka_break_no_rule(part: int) -> None:
    for seed in range(part, _SEEDS, 2):
        history = replace(shared_history_of(seed), broker="kafka")
        if seed % 3 == 0 and history.shape != "running":
            history = replace(history, sink="kafka")
        outcome = run_shared(history)
        assert not outcome.wrong, f"{outcome.history}\n" + "\n".join(outcome.wrong)


@pytest.mark.parametrize("seed", [3, 11, 19])
def test_instances_whose_clients_have_all_forgotten_the_brokers_go_on(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "_STUCK", 1.0)
    history = replace(shared_history_of(seed), broker="kafka", away={"broker": ((500_000, 1_500_000),)})
    outcome = run_shared(history)
    assert not outcome.wrong, f"{outcome.history}\n" + "\n".join(outcome.wrong)
    assert "Consumer has no brokers any more" in outcome.trace.text()


@pytest.mark.parametrize("seed", [13, 42])
def test_topics_of_a_job_stay_small(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without faults: what was read, and what a snapshot of the state has replaced, is removed. Checked, because it can fail."""
    history = replace(shared_history_of(seed), broker="kafka", events=(), away={}, lossy=0.0)
    assert not run_shared(history).wrong
    monkeypatch.setattr(KafkaTopics, "trim", lambda *_, **__: None)
    [first, *_] = run_shared(history).wrong
    assert "records or versions stay in headrace-" in first


def test_histories_with_connectors_have_each_broker() -> None:
    histories = [connector_history_of(seed) for seed in range(1, 40, 2)]
    assert {each.broker for each in histories if isinstance(each, SharedHistory)} == set(BROKERS)
