"""What ``${NAME}`` stands for, and that secrets stay places."""

from __future__ import annotations

import pickle

import pytest
from headrace.plan.explain import plan_as_text
from headrace_pipeline import pipeline
from pipeline_files import Write, error_of

TEXT = """
    name: orders
    variables: {LEAST: 1, EMPTY: null}
    sources:
      orders: {connector: file, path: orders.ndjson, format: json, schema: {id: int64, note: string}}
    steps:
      - where: id > ${LEAST} AND note <> '$${LEAST}'
    sinks:
      large: {connector: print}
"""


def where_of(text: str) -> str:
    return next(line.split("where")[1].strip() for line in text.splitlines() if "○  where" in line)


def test_given_then_environment_then_default(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(TEXT)
    monkeypatch.delenv("LEAST", raising=False)
    assert where_of(plan_as_text(pipeline(path).plan())) == "id > 1 AND note <> '${LEAST}'"
    monkeypatch.setenv("LEAST", "2")
    assert where_of(plan_as_text(pipeline(path).plan())) == "id > 2 AND note <> '${LEAST}'"
    assert where_of(plan_as_text(pipeline(path, variables={"LEAST": "3"}).plan())) == "id > 3 AND note <> '${LEAST}'"


def test_a_default_of_nothing(write: Write) -> None:
    assert "the variable 'EMPTY' has no value" in error_of(write(TEXT.replace("> ${LEAST}", "> ${EMPTY}")))


def test_a_secret_stays_a_place(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", "hunter2")
    sink = """
      large:
        connector: mysql
        host: db
        database: shop
        table: orders
        user: me
        password: ${ORDERS_PASSWORD}
"""
    job = pipeline(write(TEXT.replace("large: {connector: print}", sink.strip())))
    (node,) = job.sink_nodes
    assert node.sink.settings.password.reveal() == "hunter2"
    assert b"hunter2" not in pickle.dumps(node.sink.settings)
    assert "hunter2" not in plan_as_text(job.plan())
    wrong = sink.strip().replace("${ORDERS_PASSWORD}", "x${ORDERS_PASSWORD}")
    assert "a secret is ${NAME} and nothing else" in error_of(write(TEXT.replace("large: {connector: print}", wrong)))


def test_a_secret_among_the_properties_of_a_driver(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    sink = '{connector: kafka, topic: t, servers: "k:9092", conf: {ssl.key.password: "${KAFKA_PASSWORD}"}}'
    job = pipeline(write(TEXT.replace("{connector: print}", sink)))
    assert "hunter2" not in plan_as_text(job.plan())
    assert "hunter2" not in repr(job.sink_nodes[0].sink.settings)
    literal = sink.replace("${KAFKA_PASSWORD}", "hunter2")
    said = error_of(write(TEXT.replace("{connector: print}", literal)))
    assert "holds a secret and would be shown in logs" in said
    assert "hunter2" not in said
