"""Jobs with logins and TLS, all given by options, against servers that demand them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import HeadraceError, JobError, OptionError, RetriableError
from headrace.testing import MemorySink, MemorySource
from headrace_rocketmq.settings import RocketMQSinkSettings, RocketMQSourceSettings
from headrace_rocketmq.sink import RocketMQSink
from headrace_rocketmq.source import RocketMQSource

from tests.eventually import eventually
from tests.servers.fixtures import StartRocketMQServer
from tests.servers.rocketmq import RocketMQOptions, RocketMQSecurity, RocketMQServer

SCHEMA = {"id": "int64", "name": "string"}
ROWS = [{"id": number, "name": f"n{number}"} for number in range(100)]


def security_of(server: RocketMQServer) -> RocketMQSecurity:
    assert server.security is not None
    return server.security


def login(server: RocketMQServer) -> dict[str, Any]:
    user = security_of(server).user
    given = {"name_servers": server.name_server, "access_key": user.name, "secret_key": user.password}
    return {**given, "request_timeout": "20 s"}


def tls(server: RocketMQServer) -> dict[str, Any]:
    return {"tls": True, "tls_ca": str(security_of(server).certificates.authority)}


def write_and_read(topic: str, group: str, **options: Any) -> list[int]:
    """Write rows to a topic that the sink makes, by one job; read them as a member of a group, by another."""
    written = MemorySource({"q": [json.dumps(row).encode() for row in ROWS]})
    hr.stream("tests", "write").from_(written, format="json", schema=SCHEMA).to_rocketmq(
        topic, key="id", create_topic=True, **options
    ).run("light")
    found = MemorySink()
    read = hr.stream("tests", "read").from_rocketmq(topic, group=group, format="json", schema=SCHEMA, **options)
    with read.to(found).start("light", checkpoint_interval="200 ms") as handle:
        eventually(lambda: len(found.rows) >= len(ROWS) or handle.status().error is not None, "all is read")
    assert handle.status().error is None
    return sorted(row["id"] for row in found.rows)


def refused(kind: type[HeadraceError], **options: Any) -> list[str]:
    """Return what source and sink say of these options, which do not let them in."""
    given = {"topic": "t", "request_timeout": "3 s", **options}
    source = RocketMQSource(RocketMQSourceSettings.of(given, plugin="rocketmq"))
    sink = RocketMQSink(RocketMQSinkSettings.of(given, plugin="rocketmq"))
    texts = []
    for call in (source.queues, lambda: sink.prepare(None)):
        with pytest.raises(kind) as caught:
            call()
        texts.append(str(caught.value))
    source.close()
    return texts


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
def test_a_login(secure_rocketmq_server: RocketMQServer, topic: str, consumer_group: str, with_tls: bool) -> None:
    options = login(secure_rocketmq_server) | (tls(secure_rocketmq_server) if with_tls else {})
    assert write_and_read(topic, consumer_group, **options) == list(range(100))


def test_servers_that_take_nothing_but_tls(
    start_rocketmq_server: StartRocketMQServer, topic: str, consumer_group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_rocketmq_server(RocketMQOptions(secure=True, require_tls=True))
    monkeypatch.setenv("MQ_SECRET", security_of(server).user.password)
    certificates = security_of(server).certificates
    own = {"tls_certificate": str(certificates.client), "tls_key": str(certificates.client_key)}
    options = login(server) | tls(server) | own | {"secret_key": "${MQ_SECRET}"}
    assert write_and_read(topic, consumer_group, **options) == list(range(100))
    for text in refused(RetriableError, **(login(server) | {"request_timeout": "1 s"})):
        assert server.name_server in text


def test_certificates_that_are_not_trusted(secure_rocketmq_server: RocketMQServer) -> None:
    stranger = str(security_of(secure_rocketmq_server).certificates.stranger_authority)
    options = login(secure_rocketmq_server) | {"request_timeout": "2 s", "tls": True, "tls_ca": stranger}
    for text in refused(OptionError, **options):
        assert "certificate verify failed" in text
        assert "option 'tls_ca'" in text
        assert secure_rocketmq_server.name_server in text


@pytest.mark.parametrize("option", ["tls_ca", "tls_certificate"])
def test_files_that_are_not_there(secure_rocketmq_server: RocketMQServer, tmp_path: Path, option: str) -> None:
    missing = str(tmp_path / "none.pem")
    options = login(secure_rocketmq_server) | tls(secure_rocketmq_server) | {option: missing}
    for text in refused(OptionError, **options):
        assert missing in text


def test_a_wrong_secret_stops_the_job(secure_rocketmq_server: RocketMQServer, topic: str, consumer_group: str) -> None:
    options = login(secure_rocketmq_server)
    assert write_and_read(topic, consumer_group, **options)
    wrong = options | {"secret_key": "not-the-secret", "request_timeout": "3 s"}
    job = hr.stream("tests", "read").from_rocketmq(topic, group=consumer_group, format="json", schema=SCHEMA, **wrong)
    with pytest.raises(JobError, match="no permission") as caught:
        job.to(MemorySink()).run("light")
    assert "option 'access_key'" in str(caught.value)
    assert "not-the-secret" not in str(caught.value)
