"""Sources of contrib/ that are silent for hours of event time, while another input of the job goes on."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest

from tests.conformance.contributed_sources import BEGIN, SCHEMA, SOURCES, Row
from tests.eventually import eventually
from tests.remote_servers import SshServer, WebServer

WINDOW_SECONDS = 60
IDLE_TIMEOUT = "300 ms"
PARTS_SECONDS = 600


@dataclass(frozen=True)
class Silent:
    """A source: how its stream begins, how records come to it, and what breaks its connections while it is silent."""

    stream: hr.Stream
    send: Callable[[Sequence[Row]], None]
    ready: Callable[[], None] = field(default=lambda: None)
    disturb: Callable[[], None] = field(default=lambda: None)


def rows_at(hour: int, first: int, key: str) -> list[Row]:
    """Return ten minutes of rows, one each ten seconds, at an hour."""
    return [
        {"n": first + n, "k": key, "ts": (BEGIN + timedelta(hours=hour, seconds=10 * n)).isoformat(), "text": "x"}
        for n in range(PARTS_SECONDS // 10)
    ]


def windows(rows: Sequence[Row]) -> Counter[str]:
    """Return what the job gives for rows, as plainly as it can be said."""
    groups: dict[tuple[str, datetime], list[int]] = {}
    for row in rows:
        at = datetime.fromisoformat(row["ts"])
        groups.setdefault((row["k"], at - timedelta(seconds=at.second % WINDOW_SECONDS)), []).append(row["n"])
    return Counter(
        json.dumps(
            {"k": key, "window_start": f"{start:%Y-%m-%dT%H:%M:%S.%fZ}", "rows": len(numbers), "first": min(numbers)},
            separators=(",", ":"),
        )
        for (key, start), numbers in groups.items()
    )


def job_of(name: str, silent: Silent, place: Path) -> hr.Job:
    """Return a job of the silent source and of files to which rows come all the time: counts by key and minute."""
    steady = hr.stream("conformance", name).from_file(f"{place}/steady/*.ndjson", format="json", schema=SCHEMA)
    both = (
        silent.stream.select(*SCHEMA)
        .watermark("ts", idle_timeout=IDLE_TIMEOUT)
        .union(steady.watermark("ts", idle_timeout=IDLE_TIMEOUT))
    )
    counts = both.key_by("k").window(hr.tumbling("1 min", on="ts")).agg(rows="count(*)", first="min(n)")
    job: hr.Job = counts.select("k", "window_start", "rows", "first").to_file(str(place / "out"), format="json")
    return job


def written(place: Path) -> Counter[str]:
    return Counter(line for part in (place / "out").glob("*.json") for line in part.read_text().splitlines())


def append_steadily(place: Path, rows: Sequence[Row]) -> None:
    (place / "steady").mkdir(exist_ok=True)
    with (place / "steady" / "a.ndjson").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def _listening(name: str) -> Callable[[Path, pytest.FixtureRequest], Silent]:
    def make(place: Path, request: pytest.FixtureRequest) -> Silent:
        sender = SOURCES[name](place)
        return Silent(sender.stream, sender.send, sender.ready)

    return make


def _mqtt(place: Path, request: pytest.FixtureRequest) -> Silent:
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    server = request.getfixturevalue("start_mosquitto_server")()
    login = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}

    def connected(name: str) -> paho.Client:
        client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv5)
        client.username_pw_set(server.user, server.password)
        kept: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        kept.SessionExpiryInterval = 3600
        client.connect(server.host, server.port, clean_start=False, properties=kept)
        client.loop_start()
        return client

    # The session of the job: the broker keeps what comes before the job is connected.
    subscribed, client = threading.Event(), connected("job")
    client.on_subscribe = lambda *told: subscribed.set()
    client.subscribe("rows", qos=1)
    assert subscribed.wait(60)
    client.disconnect()
    client.loop_stop()

    def send(rows: Sequence[Row]) -> None:
        client = connected("sender")
        for told in [client.publish("rows", json.dumps(row), qos=1) for row in rows]:
            told.wait_for_publish(60)
            assert told.is_published()
        client.disconnect()
        client.loop_stop()

    def disturb() -> None:
        server.stop()
        server.start()

    given: dict[str, Any] = {**login, "client_id": "job", "buffer": str(place / "buffer")}
    stream = hr.stream("conformance", "mqtt").from_mqtt("rows", **given, format="json", schema=SCHEMA)
    return Silent(stream, send, disturb=disturb)


def _redis(place: Path, request: pytest.FixtureRequest) -> Silent:
    import redis

    server = request.getfixturevalue("start_redis_server")()
    login = {"host": server.host, "port": server.port}

    def send(rows: Sequence[Row]) -> None:
        with redis.Redis(**login, username=server.user, password=server.password) as client:
            for row in rows:
                client.xadd("rows", {b"data": json.dumps(row).encode()})

    def disturb() -> None:
        server.stop()
        server.start()

    with redis.Redis(**login, username=server.user, password=server.password) as client:  # an empty stream
        client.xgroup_create("rows", "made", mkstream=True)
        client.xgroup_destroy("rows", "made")
    stream = hr.stream("conformance", "redis").from_redis(
        "rows", **login, user=server.user, password=server.password, format="json", schema=SCHEMA
    )
    return Silent(stream, send, disturb=disturb)


def _s3(place: Path, request: pytest.FixtureRequest) -> Silent:
    server, bucket = request.getfixturevalue("s3_server"), request.getfixturevalue("s3_bucket")
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    environment = {
        "AWS_ENDPOINT_URL": server.endpoint, "AWS_DEFAULT_REGION": server.region,
        "AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key,
    }  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    files = server.file_system()

    def send(rows: Sequence[Row]) -> None:
        with files.open_output_stream(f"{bucket}/in/{rows[0]['n']}.ndjson") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows).encode())

    stream = hr.stream("conformance", "s3").from_file(
        f"s3://{bucket}/in/*.ndjson", format="json", schema=SCHEMA, list_interval="200 ms"
    )
    return Silent(stream, send)


def _appended(file: Path, rows: Sequence[Row]) -> None:
    with file.open("a") as opened:
        opened.writelines(json.dumps(row) + "\n" for row in rows)


def _sftp(place: Path, request: pytest.FixtureRequest) -> Silent:
    pytest.importorskip("paramiko")
    (place / "ssh").mkdir()
    (place / "remote").mkdir()
    server = SshServer(place / "ssh")
    request.addfinalizer(server.stop)

    def disturb() -> None:
        server.stop()
        server.start()

    stream = hr.stream("conformance", "sftp").from_file(
        f"{server.url}{place / 'remote'}/*.ndjson", format="json", schema=SCHEMA, list_interval="200 ms", rotate_wait=0,
        storage_options={"known_hosts": str(server.known_hosts), "key_filename": str(server.key)},
    )  # fmt: skip
    return Silent(stream, lambda rows: _appended(place / "remote" / "a.ndjson", rows), disturb=disturb)


def _web(place: Path, request: pytest.FixtureRequest) -> Silent:
    pytest.importorskip("aiohttp")
    (place / "web").mkdir()
    server = WebServer(place / "web")
    request.addfinalizer(server.stop)

    def disturb() -> None:
        """Refuse some requests: those that come until as many again have been answered so."""
        refused = len(server.requests) + 5
        server.status = 503
        eventually(lambda: len(server.requests) >= refused, "the server has refused requests")
        server.status = None

    stream = hr.stream("conformance", "web").from_file(
        f"{server.url}/", format="json", schema=SCHEMA, list_interval="200 ms", rotate_wait=0
    )
    return Silent(stream, lambda rows: _appended(place / "web" / "a.ndjson", rows), disturb=disturb)


SILENT: dict[str, Callable[[Path, pytest.FixtureRequest], Silent]] = {
    "syslog": _listening("syslog"), "http": _listening("http"), "mqtt": _mqtt, "redis": _redis, "s3": _s3,
    "sftp": _sftp, "web": _web,
}  # fmt: skip
