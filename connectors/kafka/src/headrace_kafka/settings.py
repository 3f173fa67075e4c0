"""The options of source and sink, and how they become a driver's configuration."""

from __future__ import annotations

import importlib.util
from datetime import timedelta
from typing import Annotated, Any, Literal

from headrace.errors import OptionError
from headrace.settings import Secret, Settings, option
from headrace.sink import SinkSettings

Driver = Literal["auto", "confluent", "kafka-python"]
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class KafkaSourceSettings(Settings, frozen=True, kw_only=True):
    """Options of ``from_kafka``."""

    topic: Annotated[str, option("topics to read: one name, or several separated by commas")]
    servers: Annotated[str, option("addresses of brokers, host:port separated by commas")]
    group: Annotated[str | None, option("consumer group; default: headrace-<topic>")] = None
    driver: Annotated[Driver, option("client library; auto: confluent where it is installed")] = "auto"
    offsets: Annotated[dict[str, int] | None, option("first offset by partition number, before start")] = None
    isolation: Annotated[
        Literal["read_committed", "read_uncommitted"],
        option("whether records of open or aborted transactions are read"),
    ] = "read_committed"
    max_buffered_records: Annotated[int, option("records fetched ahead per partition", ge=1)] = 50_000
    session_timeout: Annotated[timedelta, option("after which a silent instance loses its partitions")] = timedelta(
        seconds=10
    )
    security_protocol: Annotated[SecurityProtocol, option("how to talk to the brokers")] = "PLAINTEXT"
    sasl_mechanism: Annotated[SaslMechanism | None, option("how to authenticate")] = None
    username: Annotated[str | None, option("user for SASL")] = None
    password: Annotated[Secret | None, option('password for SASL; "${VARIABLE}" reads the environment')] = None
    ssl_ca: Annotated[str | None, option("file with the certificates to trust")] = None
    ssl_certificate: Annotated[str | None, option("file with the client's certificate")] = None
    ssl_key: Annotated[str | None, option("file with the client's key")] = None
    ssl_key_password: Annotated[Secret | None, option("password of the client's key")] = None
    ssl_check_hostname: Annotated[bool, option("whether the broker's certificate must name its host")] = True
    connect_timeout: Annotated[timedelta, option("how long to wait for a broker's answer")] = timedelta(seconds=10)
    conf: Annotated[dict[str, Any] | None, option("further properties, handed to the driver as they are")] = None

    def validate(self) -> None:
        check_security(self)

    @property
    def topics(self) -> list[str]:
        return [name.strip() for name in self.topic.split(",") if name.strip()]

    @property
    def group_id(self) -> str:
        return self.group or "headrace-" + "-".join(self.topics)


class KafkaSinkSettings(SinkSettings, frozen=True, kw_only=True):
    """Options of ``to_kafka``."""

    topic: Annotated[str, option("topic to write to")]
    servers: Annotated[str, option("addresses of brokers, host:port separated by commas")]
    format: Annotated[str, option("format of the record values")] = "json"
    key: Annotated[str | None, option("column whose value is the record's key: the same key, the same partition")] = (
        None
    )
    partition: Annotated[str | None, option("column with the number of the partition")] = None
    delivery: Annotated[
        Literal["at_least_once", "exactly_once"], option("exactly_once writes in transactions with its progress")
    ] = "at_least_once"
    transactional_id: Annotated[str | None, option("prefix of transactional ids; default: headrace-<topic>")] = None
    driver: Annotated[Driver, option("client library; auto: confluent where it is installed")] = "auto"
    create_topic: Annotated[bool, option("create the topic when it does not exist")] = False
    partitions: Annotated[int, option("partitions of a topic that is created", ge=1)] = 1
    replication_factor: Annotated[int, option("replicas of a topic that is created", ge=1)] = 1
    compression: Annotated[Literal["none", "gzip", "snappy", "lz4", "zstd"], option("compression of batches")] = "lz4"
    linger: Annotated[timedelta, option("how long a record waits for others")] = timedelta(milliseconds=5)
    security_protocol: Annotated[SecurityProtocol, option("how to talk to the brokers")] = "PLAINTEXT"
    sasl_mechanism: Annotated[SaslMechanism | None, option("how to authenticate")] = None
    username: Annotated[str | None, option("user for SASL")] = None
    password: Annotated[Secret | None, option('password for SASL; "${VARIABLE}" reads the environment')] = None
    ssl_ca: Annotated[str | None, option("file with the certificates to trust")] = None
    ssl_certificate: Annotated[str | None, option("file with the client's certificate")] = None
    ssl_key: Annotated[str | None, option("file with the client's key")] = None
    ssl_key_password: Annotated[Secret | None, option("password of the client's key")] = None
    ssl_check_hostname: Annotated[bool, option("whether the broker's certificate must name its host")] = True
    connect_timeout: Annotated[timedelta, option("how long to wait for a broker's answer")] = timedelta(seconds=10)
    conf: Annotated[dict[str, Any] | None, option("further properties, handed to the driver as they are")] = None

    def validate(self) -> None:
        check_security(self)


KafkaSettings = KafkaSourceSettings | KafkaSinkSettings


def check_security(settings: KafkaSettings) -> None:
    """Raise OptionError when the options of authentication do not go together."""
    sasl = settings.security_protocol.startswith("SASL")
    if sasl and (settings.sasl_mechanism is None or settings.username is None or settings.password is None):
        raise OptionError(
            f"security_protocol {settings.security_protocol} needs sasl_mechanism, username and password",
            plugin="kafka",
            option="sasl_mechanism",
        )
    if not sasl and (settings.sasl_mechanism or settings.username):
        raise OptionError(
            f"sasl options have no effect with security_protocol {settings.security_protocol}",
            plugin="kafka",
            option="security_protocol",
            hint="use SASL_SSL (or SASL_PLAINTEXT in a trusted network)",
        )


def driver_name(settings: KafkaSettings) -> str:
    """Return the driver to use: ``confluent`` where it is installed, unless the settings say otherwise."""
    installed = importlib.util.find_spec("confluent_kafka") is not None
    if settings.driver == "auto":
        return "confluent" if installed else "kafka-python"
    if settings.driver == "confluent" and not installed:
        raise OptionError(
            "confluent-kafka is not installed",
            plugin="kafka",
            option="driver",
            hint="pip install headrace-kafka[confluent], or driver='kafka-python'",
        )
    return settings.driver


def confluent_properties(settings: KafkaSettings) -> dict[str, Any]:
    """Return librdkafka's properties for reaching the cluster. They hold revealed secrets: never log them."""
    milliseconds = int(settings.connect_timeout.total_seconds() * 1000)
    properties: dict[str, Any] = {
        "bootstrap.servers": settings.servers,
        "security.protocol": settings.security_protocol,
        "socket.connection.setup.timeout.ms": max(1000, milliseconds),
        "sasl.mechanism": settings.sasl_mechanism,
        "sasl.username": settings.username,
        "sasl.password": settings.password.reveal() if settings.password else None,
        "ssl.ca.location": settings.ssl_ca,
        "ssl.certificate.location": settings.ssl_certificate,
        "ssl.key.location": settings.ssl_key,
        "ssl.key.password": settings.ssl_key_password.reveal() if settings.ssl_key_password else None,
        "ssl.endpoint.identification.algorithm": (
            ("https" if settings.ssl_check_hostname else "none") if settings.security_protocol.endswith("SSL") else None
        ),
        "log_level": 2,
    }
    return {name: value for name, value in properties.items() if value is not None} | (settings.conf or {})


def kafka_python_properties(settings: KafkaSettings) -> dict[str, Any]:
    """Return kafka-python's arguments for reaching the cluster. They hold revealed secrets: never log them."""
    milliseconds = int(settings.connect_timeout.total_seconds() * 1000)
    properties: dict[str, Any] = {
        "bootstrap_servers": settings.servers.split(","),
        "security_protocol": settings.security_protocol,
        "sasl_mechanism": settings.sasl_mechanism,
        "sasl_plain_username": settings.username,
        "sasl_plain_password": settings.password.reveal() if settings.password else None,
        "ssl_cafile": settings.ssl_ca,
        "ssl_certfile": settings.ssl_certificate,
        "ssl_keyfile": settings.ssl_key,
        "ssl_password": settings.ssl_key_password.reveal() if settings.ssl_key_password else None,
        "ssl_check_hostname": settings.ssl_check_hostname,
        "bootstrap_timeout_ms": milliseconds,
    }
    return {name: value for name, value in properties.items() if value is not None} | (settings.conf or {})
