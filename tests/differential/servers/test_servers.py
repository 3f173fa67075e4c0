"""A few seeds of jobs into each server. More: ``make fuzz-servers SEEDS=200``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.differential.choices import Choices
from tests.differential.families import problem_of, server_families
from tests.differential.kinds import BIGINT, INT, MAP, ROW, STRING
from tests.differential.servers.family import SHAPES, ServerCase, generate
from tests.servers.elasticsearch import ElasticsearchServer
from tests.servers.kafka import KafkaServer
from tests.servers.mysql import MySQLServer
from tests.servers.rocketmq import RocketMQServer

SEEDS = 6


def _check(name: str, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(type(server).variable, server.to_variable())
    for seed in range(SEEDS):
        problem = problem_of(Choices.of_seed(seed), name)
        assert problem is None, f"seed {seed}\n{problem}"


def test_mysql(mysql_server: MySQLServer, monkeypatch: pytest.MonkeyPatch) -> None:
    _check("mysql", mysql_server, monkeypatch)


def test_kafka(kafka_server: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    _check("kafka", kafka_server, monkeypatch)


def test_rocketmq(rocketmq_server: RocketMQServer, monkeypatch: pytest.MonkeyPatch) -> None:
    _check("rocketmq", rocketmq_server, monkeypatch)


def test_elasticsearch(elasticsearch_server: ElasticsearchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    _check("elasticsearch", elasticsearch_server, monkeypatch)


@pytest.mark.parametrize("name", sorted(server_families()))
def test_equal_choices_make_equal_cases(name: str) -> None:
    for seed in range(20):
        choices = Choices.of_seed(seed)
        assert str(generate(choices, name)) == str(generate(Choices.of_list(choices.made), name))


def test_cases_of_each_kind_are_made() -> None:
    cases: list[ServerCase] = [generate(Choices.of_seed(seed), "mysql") for seed in range(200)]
    assert {case.shape for case in cases} == set(SHAPES)
    assert {column.kind for case in cases for column in case.tables[0].columns} >= {INT, STRING, BIGINT, ROW, MAP}
    assert {case.batch for case in cases} == {1, 7, 1000}
    assert {each[0] for case in cases for each in case.breaks} == {"kill", "stop"}
