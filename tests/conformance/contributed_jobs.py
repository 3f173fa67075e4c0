"""Jobs over the formats, verbs and sinks of contrib/: what it needs is written into a directory, and workers of Spark read it there."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cbor2
import headrace as hr
import msgspec
from google.protobuf import descriptor_pb2
from headrace.interfaces.language import language
from headrace.testing import MemorySource
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

#: A file of which Spark gives ranges to two tasks: parts of one line may lie on both sides of a border.
_LARGE = 44_000
_AVRO = """{"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}, {"name": "customer", "type": "string"}]}"""
_YAML = """
name: {name}
namespace: contributed
sources:
  requests: {{connector: file, path: {place}/access.log, format: raw}}
steps:
  - parse: {{grok: "^%{{COMBINEDAPACHELOG}}$", on: line}}
  - where: response >= 400
  - select: [clientip, verb, lower(request) AS path, response]
sinks:
  failures: {{connector: file, path: {place}/out/yaml, format: json}}
dead_letters: {{connector: file, path: {place}/out/yaml-dead, format: json}}
"""
_RULES = """
title: Failed login
name: failed_login
level: low
detection: {selection: {EventID: 4625}, condition: selection}
---
title: Login
name: login
level: informational
detection: {selection: {EventID: 4624}, condition: selection}
---
title: Guessed password
id: guessed
level: high
correlation: {type: temporal_ordered, rules: [failed_login, login], group-by: [User], timespan: 10m}
---
title: Passwords of many users
id: sprayed
level: critical
correlation: {type: value_count, rules: [failed_login], group-by: [Host], timespan: 10m, condition: {field: User, gte: 3}}
"""
_LOGINS = {"ts": "timestamp", "Host": "string", "User": "string", "EventID": "int64"}


def lay_out(place: Path) -> None:
    """Write the input files."""
    pods = place / "pods" / "shop_web-7d4f_0b1f22aa" / "nginx"
    pods.mkdir(parents=True)
    (pods / "0.log").write_text("".join(_container_lines()))
    (place / "entries.export").write_text(
        "".join(f"__REALTIME_TIMESTAMP=17698536000{n:05}\n_PID={n}\nMESSAGE=accepted {n}\n\n" for n in range(500))
    )
    (place / "access.log").write_text("".join(_requests()))
    (place / "syslog.log").write_text("".join(_messages()))
    (place / "rules.yml").write_text(_RULES)
    (place / "failures.yaml").write_text(_YAML.format(name="yaml", place=place))
    rng = random.Random(3)
    logins = [
        {
            "ts": f"2026-01-01T10:{n // 60:02}:{n % 60:02}Z",
            "Host": f"h{rng.randrange(5)}",
            "User": f"u{rng.randrange(20)}",
            "EventID": rng.choice([4624, 4625, 1]),
        }
        for n in range(900)
    ]
    (place / "logins.ndjson").write_text("".join(json.dumps(each) + "\n" for each in logins))
    order = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    message = order.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="customer", number=2, type=9, label=1)
    (place / "shop.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[order]).SerializeToString())


def formats(place: Path) -> hr.Job:
    """Return a job that reads every format, each into a directory of its own; bad records go to ``dead``."""
    begin = hr.stream("contributed", "formats")

    def out(name: str) -> dict[str, Any]:
        return {"path": str(place / "out" / name), "format": "json"}

    bodies = {name: MemorySource(queues) for name, queues in _bodies().items()}
    avro = begin.from_(bodies["avro"], format="avro", avro_schema=_AVRO, name="avro").where("id % 2 = 1")
    written = avro.dead_letters(
        lambda bad: bad.select("queue", "offset", "origin", "reason").to_file(**out("dead"))
    ).to_file(**out("avro"))
    columns = {"id": "int64", "customer": "string"}
    descriptors: dict[str, Any] = {"descriptor_file": str(place / "shop.desc"), "message": "shop.Order"}
    container = begin.from_file(f"{place}/pods/*/*/*.log", format="cri", metadata={"path": "queue"}, name="cri")
    journal = {"__REALTIME_TIMESTAMP": "timestamp", "_PID": "int64", "MESSAGE": "string"}
    job: hr.Job = written.also(
        begin.from_(bodies["msgpack"], format="msgpack", schema=columns, name="msgpack").to_file(**out("msgpack")),
        begin.from_(bodies["cbor"], format="cbor", schema=columns, name="cbor").to_file(**out("cbor")),
        begin.from_(bodies["protobuf"], format="protobuf", **descriptors, name="protobuf").to_file(**out("protobuf")),
        begin.from_(bodies["otlp"], format="otlp-logs", name="otlp").select("time", "body").to_file(**out("otlp")),
        container.kubernetes_path(on="path").select("pod", "container", "stream", "message").to_file(**out("cri")),
        begin.from_file(f"{place}/entries.export", format="journal-export", schema=journal, name="journal").to_file(
            **out("journal")
        ),
        begin.from_file(f"{place}/access.log", format="nginx-access", name="nginx").to_file(**out("nginx")),
        begin.from_file(f"{place}/access.log", format="raw", name="lines")
        .grok("^%{COMBINEDAPACHELOG}$", on="line")
        .to_file(**out("grok")),
        begin.from_file(f"{place}/syslog.log", format="syslog", name="syslog").to_file(**out("syslog")),
    )
    return job


def pipeline(place: Path) -> hr.Job:
    """Return a job from a file of YAML."""
    job: hr.Job = language("yaml").job(str(place / "failures.yaml"))
    return job


def detection(place: Path) -> hr.Job:
    """Return a job that correlates rows by user and host, and stores its alerts and counts in SQLite."""
    rules, database = str(place / "rules.yml"), str(place / "out" / "alerts.db")
    logins = hr.stream("contributed", "detection").from_file(f"{place}/logins.ndjson", format="json", schema=_LOGINS)
    alerts = logins.rules(rules).correlate(rules, on="ts", late="10 s")
    counts = logins.key_by("User").window(hr.tumbling("1 min", on="ts")).agg(n="count(*)")
    job: hr.Job = (
        alerts.select("rule_id", "rule_severity", "correlation_key", "correlation_count", "User")
        .to_sqlite("alerts", database, create_table=True)
        .also(counts.to_sqlite("counts", database, create_table=True))
    )
    return job


def _bodies() -> dict[str, dict[str, list[bytes]]]:
    """Return bodies by format and queue, with a bad one in each."""
    rows = [{"id": n, "customer": f"c{n % 7}"} for n in range(120)]
    made = {
        "avro": [_zigzag(row["id"]) + _zigzag(2) + str(row["customer"]).encode() for row in rows],  # type: ignore[arg-type]
        "msgpack": [msgspec.msgpack.encode(row) for row in rows],
        "cbor": [cbor2.dumps(row) for row in rows],
        "protobuf": [bytes([8, int(row["id"]), 18, 2]) + str(row["customer"]).encode() for row in rows],  # type: ignore[call-overload]
        "otlp": [_request(n) for n in range(60)],
    }
    found = {}
    for name, bodies in made.items():
        bodies[7] = bodies[7][:-1]
        found[name] = {"a": bodies[: len(bodies) // 2], "b": bodies[len(bodies) // 2 :]}
    return found


def _zigzag(number: int) -> bytes:
    """Return a small whole number as Avro writes it."""
    doubled = number * 2
    return bytes([doubled]) if doubled < 128 else bytes([doubled & 127 | 128, doubled >> 7])


def _request(number: int) -> bytes:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for each in range(number % 3):
        records.add(time_unix_nano=1_769_853_600_000_000_000 + number).body.string_value = f"{number}-{each}"
    return bytes(request.SerializeToString() or b"\x00")


def _container_lines() -> Iterator[str]:
    for n in range(_LARGE):
        time = f"2026-01-31T10:{n // 600 % 60:02}:{n // 10 % 60:02}.{n % 10}00000000Z"
        if n % 501 == 0:
            yield "damaged\n"
        elif n % 7 in (3, 4):
            yield f"{time} stdout P part {n} \n"
        elif n % 7 == 5:
            yield f"{time} stdout F end {n}\n"
        else:
            yield f"{time} stderr F line {n}\n"


def _requests() -> Iterator[str]:
    for n in range(400):
        request = f'"GET /P{n} HTTP/1.1" {200 + n % 300} {n} "-" "Mozilla/5.0"'
        yield f"192.0.2.{n % 200} - - [10/Oct/2026:13:55:36 +0000] {request}\n" if n % 50 else "broken\n"


def _messages() -> Iterator[str]:
    for n in range(400):
        yield (
            f"<{n % 190}>1 2026-01-31T10:00:00.{n:06}Z host{n % 3} app {n} ID - message {n}\n" if n % 9 else "<999>x\n"
        )
