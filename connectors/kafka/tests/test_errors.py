"""What people read when something is wrong with the server, the login, the certificates, the topic or the options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import headrace as hr
import pytest
from confluent_kafka import admin
from headrace.foundation.errors import HeadraceError, JobError, JobFailedError, OptionError, RetriableError
from headrace.interfaces.source import EARLIEST
from headrace_kafka.settings import KafkaSinkSettings, KafkaSourceSettings
from headrace_kafka.sink import KafkaSink
from headrace_kafka.source import KafkaSource
from kafka_world import KafkaWorld

from tests.servers.kafka import KafkaSecurity, KafkaServer

Options = dict[str, Any]
TOPIC = "orders"
# The package does not export these names for type checkers.
ck_admin: Any = admin


@pytest.fixture(scope="module")
def secure_world(secure_kafka_server: KafkaServer) -> Iterator[KafkaWorld]:
    world = KafkaWorld(secure_kafka_server.bootstrap)
    world.create_topic(TOPIC)
    world.write(TOPIC, [b"{}"])
    yield world
    world.close()


@pytest.fixture
def security(secure_kafka_server: KafkaServer, secure_world: KafkaWorld) -> KafkaSecurity:
    assert secure_kafka_server.security is not None
    return secure_kafka_server.security


def sasl(security: KafkaSecurity, **more: Any) -> Options:
    return {
        "servers": security.sasl_plaintext,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "username": security.user.name,
        "password": security.user.password,
        **more,
    }


def tls(security: KafkaSecurity, **more: Any) -> Options:
    given = {"servers": security.ssl, "security_protocol": "SSL", "ssl_ca": str(security.certificates.authority)}
    return {**given, **more}


def outsider(security: KafkaSecurity, **more: Any) -> Options:
    return sasl(security, username=security.outsider.name, password=security.outsider.password, **more)


def connect_source(options: Options) -> None:
    """Do what a runtime does with a source at the start, and read."""
    source = KafkaSource(KafkaSourceSettings.of({"topic": TOPIC, "connect_timeout": "1 s", **options}, plugin="kafka"))
    try:
        source.check()
        [queue] = source.queues()
        source.committed(queue)
        reader = source.open(queue, EARLIEST)
        assert reader.poll(10, timedelta(seconds=10)) is not None
    finally:
        source.close()


def connect_sink(options: Options) -> None:
    """Do what a runtime does with a sink before anything is read."""
    sink = KafkaSink(KafkaSinkSettings.of({"topic": TOPIC, "connect_timeout": "1 s", **options}, plugin="kafka"))
    try:
        sink.check(None)
        sink.prepare(None)
    finally:
        sink.close()


def text_of(connect: Callable[[Options], None], options: Options, kind: type[HeadraceError]) -> str:
    with pytest.raises(kind) as caught:
        connect(options)
    assert type(options.get("password")) is not str or options["password"] not in repr(caught.value.__cause__)
    return str(caught.value)


@pytest.fixture(params=[connect_source, connect_sink], ids=["source", "sink"])
def connect(request: pytest.FixtureRequest) -> Callable[[Options], None]:
    found: Callable[[Options], None] = request.param
    return found


@pytest.mark.parametrize("servers", ["127.0.0.1:1", "no.such.host.invalid:9092"])
def test_server_that_is_not_there(connect: Callable[[Options], None], driver: str, servers: str) -> None:
    reason = "Connection refused" if servers == "127.0.0.1:1" else "Name or service not known"
    assert text_of(connect, {"servers": servers, "driver": driver}, RetriableError) == (
        f"Kafka at {servers} cannot be reached: {reason} [plugin 'kafka', option 'servers']\n"
        "  hint: is the server up, is this its address, and does security_protocol PLAINTEXT fit the port?"
    )


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_wrong_password(
    connect: Callable[[Options], None], driver: str, security: KafkaSecurity, mechanism: str
) -> None:
    said = {
        "PLAIN": "Authentication failed: Invalid username or password",
        "SCRAM-SHA-256": "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        "SCRAM-SHA-256",
    }[mechanism]
    options = sasl(security, driver=driver, password="wr0ng-s3cr3t", sasl_mechanism=mechanism)
    assert text_of(connect, options, JobError) == (
        f"Kafka at {security.sasl_plaintext}: login of 'user' failed: {said} [plugin 'kafka', option 'password']\n"
        "  hint: check username, password and sasl_mechanism"
    )


def test_no_permission_for_the_topic(connect: Callable[[Options], None], driver: str, security: KafkaSecurity) -> None:
    assert text_of(connect, outsider(security, driver=driver), JobError) == (
        f"Kafka at {security.sasl_plaintext}: user 'outsider' has no permission for topic 'orders' "
        "[plugin 'kafka', option 'topic']\n"
        "  hint: grant it (see the ACLs of the brokers), or log in as a user who has it"
    )


def test_certificate_of_a_stranger(connect: Callable[[Options], None], driver: str, security: KafkaSecurity) -> None:
    options = tls(security, driver=driver, ssl_ca=str(security.certificates.stranger_authority))
    detail = {"confluent": "", "kafka-python": ": unable to get local issuer certificate"}[driver]
    assert text_of(connect, options, JobError) == (
        f"Kafka at {security.ssl}: certificate verify failed{detail} [plugin 'kafka', option 'ssl_ca']\n"
        "  hint: check ssl_ca, and whether security_protocol fits the port"
    )


@pytest.mark.parametrize("option", ["ssl_ca", "ssl_certificate", "ssl_key"])
def test_file_that_is_not_there(
    connect: Callable[[Options], None], driver: str, security: KafkaSecurity, option: str
) -> None:
    options = tls(security, driver=driver, **{option: "/no/such/file.pem"})
    assert text_of(connect, options, OptionError) == (
        f"'/no/such/file.pem' cannot be read [plugin 'kafka', option '{option}']"
    )


def test_login_at_a_port_without_login(
    connect: Callable[[Options], None], driver: str, security: KafkaSecurity, secure_kafka_server: KafkaServer
) -> None:
    text = text_of(connect, sasl(security, driver=driver, servers=secure_kafka_server.bootstrap), JobError)
    assert text.startswith(f"Kafka at {secure_kafka_server.bootstrap}: ")
    assert text.endswith(
        "[plugin 'kafka', option 'sasl_mechanism']\n"
        "  hint: check sasl_mechanism, and whether security_protocol fits the port"
    )


@pytest.mark.parametrize("port", ["sasl_plaintext", "ssl"])
def test_port_that_wants_more(
    connect: Callable[[Options], None], driver: str, security: KafkaSecurity, port: str
) -> None:
    servers = getattr(security, port)
    text = text_of(connect, {"servers": servers, "driver": driver}, RetriableError)
    # Whether librdkafka gives a reason before the time is up depends on when it was disconnected last.
    told = {"confluent": ".+", "kafka-python": "this port expects TLS" if port == "ssl" else "no answer within 1 s"}
    assert re.fullmatch(
        f"Kafka at {servers} cannot be reached: {told[driver]} \\[plugin 'kafka', option 'servers'\\]\n"
        r"  hint: is the server up, is this its address, and does security_protocol PLAINTEXT fit the port\?",
        text,
    )


def test_unknown_topic_with_the_nearest_name(
    driver: str, secure_kafka_server: KafkaServer, security: KafkaSecurity
) -> None:
    options = {"servers": secure_kafka_server.bootstrap, "driver": driver, "topic": "order"}
    where = f"there is no topic 'order' at {secure_kafka_server.bootstrap} [plugin 'kafka', option 'topic']"
    assert text_of(connect_source, options, JobError) == f"{where}\n  hint: did you mean 'orders'?"
    assert text_of(connect_sink, options, JobError) == (
        f"{where}\n  hint: did you mean 'orders'? (to create it: create_topic=True)"
    )


def test_unknown_property(connect: Callable[[Options], None], driver: str, secure_kafka_server: KafkaServer) -> None:
    options = {"servers": secure_kafka_server.bootstrap, "driver": driver, "conf": {"nonsense": 1}}
    text = {
        "confluent": "No such configuration property: \"nonsense\" [plugin 'kafka', option 'conf']",
        "kafka-python": "Unrecognized configs: {'nonsense'} [plugin 'kafka', option 'conf']",
    }[driver]
    assert text_of(connect, options, OptionError) == text


@pytest.mark.parametrize("name", ["group.id", "enable.auto.commit", "isolation.level", "bootstrap.servers"])
def test_properties_that_guarantees_rest_on_are_not_taken(name: str) -> None:
    options = {"servers": "127.0.0.1:1", "driver": "confluent", "conf": {name: "x"}}
    assert text_of(connect_source, options, OptionError) == (
        f"'{name}' cannot be set in conf: the guarantees depend on it, or another option sets it [plugin 'kafka', option 'conf']"
        "\n  hint: see docs/connectors/kafka.md for the option that sets it"
    )


# ------------------------------------------------------------------------------------------------- partial permissions


@pytest.fixture
def allow(secure_world: KafkaWorld) -> Iterator[Callable[..., None]]:
    """Give the outsider a permission; it is taken away after the test."""
    given: list[Any] = []

    def allow(resource: Any, name: str, operation: Any) -> None:
        place = (resource, name, ck_admin.ResourcePatternType.LITERAL, "User:outsider", "*", operation)
        binding = ck_admin.AclBinding(*place, ck_admin.AclPermissionType.ALLOW)
        for future in secure_world._admin.create_acls([binding]).values():
            future.result()
        given.append(ck_admin.AclBindingFilter(*place, ck_admin.AclPermissionType.ALLOW))

    yield allow
    for future in secure_world._admin.delete_acls(given).values():
        future.result()


def test_no_permission_for_the_group(driver: str, security: KafkaSecurity, allow: Callable[..., None]) -> None:
    allow(ck_admin.ResourceType.TOPIC, TOPIC, ck_admin.AclOperation.READ)
    assert text_of(connect_source, outsider(security, driver=driver), JobError) == (
        f"Kafka at {security.sasl_plaintext}: user 'outsider' has no permission for group 'headrace-orders' "
        "[plugin 'kafka', option 'group']\n"
        "  hint: grant it (see the ACLs of the brokers), or log in as a user who has it"
    )


def test_reader_may_not_write(driver: str, security: KafkaSecurity, allow: Callable[..., None]) -> None:
    allow(ck_admin.ResourceType.TOPIC, TOPIC, ck_admin.AclOperation.READ)
    assert text_of(connect_sink, outsider(security, driver=driver), JobError) == (
        f"Kafka at {security.sasl_plaintext}: user 'outsider' may not write to topic 'orders' "
        "[plugin 'kafka', option 'topic']\n"
        "  hint: grant it (see the ACLs of the brokers), or log in as a user who has it"
    )


def test_writer_without_permission_for_transactions(
    driver: str, security: KafkaSecurity, allow: Callable[..., None]
) -> None:
    allow(ck_admin.ResourceType.TOPIC, TOPIC, ck_admin.AclOperation.WRITE)
    options = outsider(security, driver=driver, topic=TOPIC, delivery="exactly_once")
    sink = KafkaSink(KafkaSinkSettings.of(options, plugin="kafka"))
    sink.check(None)
    sink.prepare(None)
    sink.open()
    try:
        with pytest.raises(JobError) as caught:
            sink.last_offset(hr.Queue("q"))  # type: ignore[attr-defined]
    finally:
        sink.close()
    assert str(caught.value) == (
        f"Kafka at {security.sasl_plaintext}: user 'outsider' has no permission for transactional id "
        "[plugin 'kafka', option 'transactional_id']\n"
        "  hint: grant it (see the ACLs of the brokers), or log in as a user who has it"
    )


def test_no_permission_to_create_the_topic(driver: str, security: KafkaSecurity, allow: Callable[..., None]) -> None:
    allow(ck_admin.ResourceType.TOPIC, "made_anew", ck_admin.AclOperation.DESCRIBE)
    options = outsider(security, driver=driver, topic="made_anew", create_topic=True)
    assert text_of(connect_sink, options, JobError) == (
        f"Kafka at {security.sasl_plaintext}: user 'outsider' has no permission for topic 'made_anew' "
        "[plugin 'kafka', option 'topic']\n"
        "  hint: grant it (see the ACLs of the brokers), or log in as a user who has it"
    )


# ------------------------------------------------------------------------------------------------------ it works


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_logins(
    connect: Callable[[Options], None], driver: str, security: KafkaSecurity, mechanism: str, protocol: str
) -> None:
    options = sasl(security, driver=driver, sasl_mechanism=mechanism, security_protocol=protocol)
    if protocol == "SASL_SSL":
        options |= {"servers": security.sasl_ssl, "ssl_ca": str(security.certificates.authority)}
    connect(options)


@pytest.mark.parametrize("with_certificate", [False, True])
def test_tls(connect: Callable[[Options], None], driver: str, security: KafkaSecurity, with_certificate: bool) -> None:
    certificates = security.certificates
    own = {"ssl_certificate": str(certificates.client), "ssl_key": str(certificates.client_key)}
    connect(tls(security, driver=driver, **(own if with_certificate else {})))


def test_a_job_over_tls_with_login(driver: str, security: KafkaSecurity, secure_world: KafkaWorld, topic: str) -> None:
    secure_world.create_topic(topic)
    options = sasl(
        security,
        driver=driver,
        servers=security.sasl_ssl,
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        ssl_ca=str(security.certificates.authority),
    )
    job = (
        hr.stream("secure", "copy")
        .from_kafka(TOPIC, format="raw", group=topic, **options)
        .to_kafka(topic, format="raw", delivery="exactly_once", **options)
    )
    assert job.run("light").records_read == 1
    assert [record.value for record in secure_world.read(topic)] == [b"{}"]


def test_a_server_that_is_down_stops_the_job_at_its_start(driver: str) -> None:
    options = {"servers": "127.0.0.1:1", "driver": driver, "connect_timeout": "300 ms"}
    job = hr.stream("down", "copy").from_kafka(TOPIC, format="raw", **options).print()
    with pytest.raises((RetriableError, JobFailedError), match=r"127\.0\.0\.1:1 cannot be reached: Connection refused"):
        job.run("light", start_timeout="1 s")
