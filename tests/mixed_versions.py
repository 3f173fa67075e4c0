"""A topic with bodies of several versions of a schema in a registry, in any order, and the job that reads it on each backend."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from confluent_kafka import Producer

from tests.servers.kafka import KafkaServer

UNKNOWN_ID = 2**31 - 1
#: Backends and options of the run for ``parametrize``.
BACKENDS = [
    ("light", {}),
    ("light", {"workers": 2}),
    pytest.param("spark", {"max_micro_batch_records": 7}, marks=[pytest.mark.slow, pytest.mark.spark]),
]


def framed(schema_id: int, body: bytes) -> bytes:
    """Return a body with the id of its schema, as the serializers of Confluent write it."""
    return b"\x00" + schema_id.to_bytes(4, "big") + body


def read_on(
    backend: Any,
    options: Mapping[str, Any],
    *,
    kafka: KafkaServer,
    topic: str,
    bodies: Iterable[bytes],
    place: Path,
    **of_format: Any,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Send bodies to a topic and read them by a job, one of whose columns is ``id``; return the rows, and the reasons of bad ones."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for body in bodies:
        producer.produce(topic, body)
    assert producer.flush(30) == 0
    stream = hr.stream("test", "mixed").from_kafka(topic, servers=kafka.bootstrap, **of_format)
    told = stream.dead_letters(partial(_to_json, place / "bad"))
    told.to_file(place / "good", format="json").run(backend, show_progress=False, **options)
    return sorted(_rows(place / "good"), key=lambda row: int(row["id"])), [
        row["reason"] for row in _rows(place / "bad")
    ]


def _to_json(place: Path, stream: hr.Stream) -> Any:
    return stream.to_file(place, format="json")


def _rows(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for part in place.rglob("*.json") for line in part.read_text().splitlines()]
