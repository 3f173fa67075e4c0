"""The options of source and sink, and what results from combinations of them."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import Secret, Settings, option
from headrace.interfaces.sink import SinkSettings

Driver = Literal["auto", "confluent", "kafka-python"]
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

_SECRET_PROPERTY = re.compile(r"password|secret|token|\.pem$|jaas|oauth\w*[._]config")
_INSTANCE_ID = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_LOOPBACK = re.compile(r"(?:[a-z_]+://)?(?:localhost|127(?:\.\d+){3}|\[::1\])(?::\d+)?", re.IGNORECASE)


# What source and sink have in common is described once.
_Servers = Annotated[str, option("addresses of brokers, host:port separated by commas")]
_Driver = Annotated[Driver, option("client library; auto: confluent if it is installed, otherwise kafka-python")]
_SecurityProtocol = Annotated[SecurityProtocol, option("protocol of the connections to the brokers")]
_SaslMechanism = Annotated[SaslMechanism | None, option("SASL mechanism of the login")]
_Username = Annotated[str | None, option("user name for SASL")]
_Password = Annotated[Secret | None, option('password for SASL; "${VARIABLE}" reads an environment variable')]
_PlaintextLogin = Annotated[
    bool,
    option("allow a login that sends the password without TLS; anybody on the network can then read it"),
]
_SslCa = Annotated[str | None, option("file with the trusted certificates; default: those of the system")]
_SslCertificate = Annotated[str | None, option("file with the client's certificate")]
_SslKey = Annotated[str | None, option("file with the client's key")]
_SslKeyPassword = Annotated[Secret | None, option("password of the client's key")]
_SslCheckHostname = Annotated[bool, option("whether the broker's certificate must contain its host name")]
_ConnectTimeout = Annotated[timedelta, option("how long to wait for a broker's answer")]
_Conf = Annotated[
    dict[str, Any] | None,
    option("further properties of the driver, under the driver's own names; write secrets as Secret"),
]


class KafkaSourceSettings(Settings, frozen=True, kw_only=True):
    """Options of ``from_kafka``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("topic",)

    topic: Annotated[str, option("topics to read: one name, or several separated by commas")]
    servers: _Servers
    group: Annotated[str | None, option("consumer group; default: headrace-JOB-TOPIC")] = None
    driver: _Driver = "auto"
    offsets: Annotated[
        dict[str | int, int] | None,
        option(
            "first offset by partition (3, or 'topic-3'), for partitions without a stored offset; has priority over start"
        ),
    ] = None
    isolation: Annotated[
        Literal["read_committed", "read_uncommitted"],
        option(
            "isolation level: read_committed leaves out records of open and aborted transactions, read_uncommitted reads them"
        ),
    ] = "read_committed"
    tombstones: Annotated[
        Literal["empty", "skip"],
        option(
            "what a record without a value gives: an empty body (json and csv send it to the dead letters), or nothing"
        ),
    ] = "empty"
    time_delay: Annotated[
        timedelta | None,
        option(
            "by how much the time of a record may lie before that of one that came earlier in its partition; 0 s: never, as in a topic "
            "with the times of its brokers. SOURCE_WATERMARK() of SQL goes by it"
        ),
    ] = None
    max_buffered_bytes: Annotated[
        int, option("maximum number of prefetched bytes per partition; above it, fetching pauses", ge=1)
    ] = 16 * 1024**2
    session_timeout: Annotated[
        timedelta, option("time without a heartbeat after which an instance loses its partitions")
    ] = timedelta(seconds=10)
    instance_id: Annotated[
        str | None,
        option(
            "unique name of this instance in its group (static membership); after a restart under this name it gets its "
            "partitions back at once"
        ),
    ] = None
    metadata_interval: Annotated[
        timedelta, option("how often a member of a group looks for new partitions")
    ] = timedelta(seconds=10)  # fmt: skip
    replication_factor: Annotated[
        int,
        option(
            "number of replicas of topics that the job creates for its shuffles and state; -1: the brokers' default"
        ),
    ] = -1
    security_protocol: _SecurityProtocol = "PLAINTEXT"
    sasl_mechanism: _SaslMechanism = None
    username: _Username = None
    password: _Password = None
    plaintext_login: _PlaintextLogin = False
    ssl_ca: _SslCa = None
    ssl_certificate: _SslCertificate = None
    ssl_key: _SslKey = None
    ssl_key_password: _SslKeyPassword = None
    ssl_check_hostname: _SslCheckHostname = True
    connect_timeout: _ConnectTimeout = timedelta(seconds=10)
    conf: _Conf = None

    def validate(self) -> None:
        check_connection(self)
        if not self.topics:
            raise OptionError("the list of topics is empty", plugin="kafka", option="topic")
        if self.instance_id is not None and not _INSTANCE_ID.fullmatch(self.instance_id):
            raise OptionError(
                f"{self.instance_id!r} cannot be the name of an instance",
                plugin="kafka",
                option="instance_id",
                hint="1 to 249 of the letters a to z, digits, '.', '_' and '-', and not '.' or '..'",
            )

    @property
    def heartbeat_interval(self) -> timedelta:
        """The interval of heartbeats. By them a member also learns of a rebalance, in which all members wait for the last one."""
        return max(timedelta(milliseconds=100), min(self.session_timeout / 10, timedelta(seconds=3)))

    @property
    def topics(self) -> list[str]:
        """The names of the topics, each once, in the order given."""
        return list(dict.fromkeys(name.strip() for name in self.topic.split(",") if name.strip()))

    def group_of(self, reader_name: str) -> str:
        """Return the consumer group; the default one is the reader's own."""
        return self.group or "-".join(["headrace", *filter(None, [reader_name]), *self.topics])


class KafkaSinkSettings(SinkSettings, frozen=True, kw_only=True):
    """Options of ``to_kafka``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("topic",)

    topic: Annotated[str, option("topic to write to")]
    servers: _Servers
    format: Annotated[
        str, option("format of the record values: json, csv, raw, or any installed codec that encodes")
    ] = "json"
    format_options: Annotated[dict[str, Any], option("options of the format's codec")] = msgspec.field(
        default_factory=dict
    )
    key: Annotated[
        str | list[str] | None,
        option("column, or columns, of the record's key; records with the same key go to the same partition"),
    ] = None
    key_format: Annotated[
        str | None,
        option(
            "format of the keys: text, the value of one column; json or another codec, of all key columns. Default: text for one column, "
            "json for several"
        ),
    ] = None
    key_prefix: Annotated[
        str,
        option(
            "what the names of the key columns begin with here, and not in keys of key_format json or another codec"
        ),
    ] = ""
    value_fields_include: Annotated[
        Literal["all", "except_key"], option("whether the values hold the key columns too")
    ] = "all"
    partition: Annotated[
        str | None, option("column with the number of the partition; when it is NULL, the key selects the partition")
    ] = None
    tombstone: Annotated[
        str | None,
        option(
            "boolean column; when it is true, the record has its key and no value (a tombstone, which deletes the key)"
        ),
    ] = None
    delivery: Annotated[
        Literal["at_least_once", "exactly_once"],
        option("guarantee; exactly_once writes rows and positions in one transaction, and readers need read_committed"),
    ] = "at_least_once"
    transactional_id: Annotated[
        str | None, option("start of the transactional ids; default: headrace-NAMESPACE.PIPELINE.SINK")
    ] = None
    driver: _Driver = "auto"
    create_topic: Annotated[bool, option("whether to create the topic if it does not exist")] = False
    partitions: Annotated[int, option("number of partitions of a created topic", ge=1)] = 1
    replication_factor: Annotated[
        int, option("number of replicas of a created topic; -1: the brokers' default", ge=-1)
    ] = -1
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"], option("compression of record batches")
    ] = "lz4"
    linger: Annotated[timedelta, option("how long a record waits for further records in its batch")] = timedelta(
        milliseconds=5
    )
    delivery_timeout: Annotated[
        timedelta, option("how long the brokers may take to acknowledge a batch before it is written again")
    ] = timedelta(seconds=30)
    security_protocol: _SecurityProtocol = "PLAINTEXT"
    sasl_mechanism: _SaslMechanism = None
    username: _Username = None
    password: _Password = None
    plaintext_login: _PlaintextLogin = False
    ssl_ca: _SslCa = None
    ssl_certificate: _SslCertificate = None
    ssl_key: _SslKey = None
    ssl_key_password: _SslKeyPassword = None
    ssl_check_hostname: _SslCheckHostname = True
    connect_timeout: _ConnectTimeout = timedelta(seconds=10)
    conf: _Conf = None

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the key; none: records have no key."""
        return () if self.key is None else (self.key,) if isinstance(self.key, str) else tuple(self.key)

    @property
    def names_in_key(self) -> dict[str, str]:
        """What the columns of the key are called in it, where it is not a text."""
        return {name: name.removeprefix(self.key_prefix) for name in self.key_columns}

    @property
    def key_as_text(self) -> bool:
        """Whether the key is the text of its one column."""
        return self.key_format == "text" or (self.key_format is None and len(self.key_columns) == 1)

    def validate(self) -> None:
        check_connection(self)
        if self.key is not None and not self.key_columns:
            raise OptionError("the list of columns is empty", plugin="kafka", option="key")
        if self.key_format is not None and self.key is None:
            raise OptionError(
                "this option needs a key, and the option key is not given",
                plugin="kafka",
                option="key_format",
                hint="name its columns: key=['...']",
            )
        if self.key_format == "text" and len(self.key_columns) > 1:
            raise OptionError(
                "key_format='text' can hold only one column",
                plugin="kafka",
                option="key_format",
                hint="key_format='json' holds several",
            )
        wrong = [name for name in self.key_columns if not name.startswith(self.key_prefix) or name == self.key_prefix]
        if wrong:
            raise OptionError(
                f"the key column {wrong[0]!r} does not begin with {self.key_prefix!r}",
                plugin="kafka",
                option="key_prefix",
            )
        if self.value_fields_include == "except_key" and self.key is None:
            raise OptionError(
                "this option needs a key, and the option key is not given",
                plugin="kafka",
                option="value_fields_include",
                hint="key=['...']",
            )
        if self.tombstone is not None and self.key is None:
            raise OptionError(
                "a tombstone deletes a key, but no key is given",
                plugin="kafka",
                option="tombstone",
                hint="name the column of the key: key='...'",
            )


KafkaSettings = KafkaSourceSettings | KafkaSinkSettings


def check_connection(settings: KafkaSettings) -> None:
    """Raise OptionError when the options for reaching the cluster do not go together."""
    protocol = settings.security_protocol
    sasl = protocol.startswith("SASL")
    for name in ("sasl_mechanism", "username", "password"):
        given = getattr(settings, name) is not None
        if sasl and not given:
            raise OptionError(f"this option is required with security_protocol {protocol}", plugin="kafka", option=name)
        if given and not sasl:
            raise OptionError(
                f"has no effect with security_protocol {protocol}",
                plugin="kafka",
                option=name,
                hint="security_protocol='SASL_SSL' (or 'SASL_PLAINTEXT' in a network that you trust)",
            )
    for name in ("ssl_ca", "ssl_certificate", "ssl_key", "ssl_key_password"):
        if getattr(settings, name) is not None and not protocol.endswith("SSL"):
            raise OptionError(
                f"has no effect with security_protocol {protocol}",
                plugin="kafka",
                option=name,
                hint=f"security_protocol='{'SASL_SSL' if sasl else 'SSL'}'",
            )
    _check_plaintext_login(settings)
    for name, value in (settings.conf or {}).items():
        if _SECRET_PROPERTY.search(name.lower()) and not isinstance(value, Secret):
            raise OptionError(
                f"{name!r} holds a secret and would be shown in logs",
                plugin="kafka",
                option="conf",
                hint=f'conf={{"{name}": headrace.Secret("${{VARIABLE}}")}}',
            )


def _check_plaintext_login(settings: KafkaSettings) -> None:
    """Raise OptionError when a password would be sent unencrypted."""
    if settings.security_protocol != "SASL_PLAINTEXT" or settings.sasl_mechanism != "PLAIN" or settings.plaintext_login:
        return
    servers = settings.servers.split(",") if isinstance(settings.servers, str) else settings.servers
    if not all(_LOOPBACK.fullmatch(each.strip()) for each in servers):
        raise OptionError(
            "SASL_PLAINTEXT with PLAIN sends the password unencrypted, to a server whose identity is not checked",
            plugin="kafka",
            option="security_protocol",
            hint="security_protocol='SASL_SSL', or sasl_mechanism='SCRAM-SHA-512'; plaintext_login=True allows it "
            "in a network that you trust",
        )


def check_files(settings: KafkaSettings) -> None:
    """Raise OptionError naming a file that cannot be read. Called in the process that connects."""
    for option_name in ("ssl_ca", "ssl_certificate", "ssl_key"):
        path = getattr(settings, option_name)
        if path is not None and not os.access(path, os.R_OK):
            raise OptionError(f"{path!r} cannot be read", plugin="kafka", option=option_name)


def driver_name(settings: KafkaSettings) -> Literal["confluent", "kafka-python"]:
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


def with_conf(properties: Mapping[str, Any], settings: KafkaSettings, reserved: Mapping[str, Any]) -> dict[str, Any]:
    """Return a driver's properties: ours, then the user's ``conf``, then those on which guarantees depend (``reserved``).

    Properties that are None are left out. Raises OptionError when ``conf`` names one that is reserved.
    """
    own = {
        name: value.reveal() if isinstance(value, Secret) else value for name, value in (settings.conf or {}).items()
    }
    for name in own:
        if name in reserved:
            raise OptionError(
                f"{name!r} cannot be set in conf: the guarantees depend on it, or another option sets it",
                plugin="kafka",
                option="conf",
                hint="see docs/connectors/kafka.md for the option that sets it",
            )
    merged = {**properties, **own, **reserved}
    return {name: value for name, value in merged.items() if value is not None}


def milliseconds(duration: timedelta) -> int:
    """Return a duration in whole milliseconds, at least one."""
    return max(1, round(duration / timedelta(milliseconds=1)))
