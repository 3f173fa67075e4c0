"""The options of headrace's RocketMQ source and sink, and the client that they describe."""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import Secret, Settings, option
from headrace.interfaces.sink import SinkSettings

from headrace_rocketmq.client import Client
from headrace_rocketmq.credentials import Credentials
from headrace_rocketmq.errors import ConfigurationError
from headrace_rocketmq.filters import Filter
from headrace_rocketmq.remoting import parse_name_servers
from headrace_rocketmq.transport import Tls

PLUGIN = "rocketmq"
#: Options that rocketmq-client-python does not support, or that make no sense for its pushed messages.
_NOT_NATIVE = (
    "offsets", "sql", "deduplicate", "allocation", "exclusive", "security_token", "tls", "address_map", "topics_broker",
)  # fmt: skip
_NATIVE_ONLY = ("native_library", "native_messages")


#: Group names have letters, digits and these characters.
_NOT_IN_GROUPS = re.compile(r"[^%|A-Za-z0-9_-]")


# What source and sink have in common is described once.
_NameServers = Annotated[str, option("addresses of name servers, host:port separated by semicolons")]
_AccessKey = Annotated[str | None, option("access key (user name), if the brokers check access")]
_SecretKey = Annotated[
    Secret | None, option('secret key that belongs to access_key; "${VARIABLE}" reads an environment variable')
]
_SecurityToken = Annotated[Secret | None, option("security token of temporary keys")]
_Tls = Annotated[bool, option("whether connections to name servers and brokers use TLS")]
_TlsCa = Annotated[str | None, option("file with the trusted certificates; default: those of the system")]
_TlsCertificate = Annotated[str | None, option("file with the client's certificate")]
_TlsKey = Annotated[str | None, option("file with the client's key")]
_TlsKeyPassword = Annotated[Secret | None, option("password of the client's key")]
_TlsCheckHost = Annotated[bool, option("whether a server's certificate must contain its host name")]
_RequestTimeout = Annotated[
    timedelta, option("how long a request may take, with its retries, before it counts as failed")
]
_ConnectTimeout = Annotated[timedelta, option("how long to wait for a connection")]
_AddressMap = Annotated[
    dict[str, str] | None,
    option("address to connect to, by the address that a broker announces; for example for brokers in containers"),
]


class RocketMQSourceSettings(Settings, frozen=True, kw_only=True):
    """Options of ``from_rocketmq``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("topic",)

    topic: Annotated[str, option("topics to read: one name, or several separated by commas")]
    name_servers: _NameServers
    group: Annotated[str | None, option("consumer group; default: headrace-JOB-TOPIC")] = None
    offsets: Annotated[
        dict[str | int, int] | None,
        option(
            "first offset by queue (3, 'broker/3' or 'topic/broker/3'), for queues without a stored offset; has priority "
            "over start"
        ),
    ] = None
    tags: Annotated[
        str | None, option("tags of the messages to read, such as 'red || blue'; the brokers leave out the others")
    ] = None
    sql: Annotated[
        str | None, option("SQL92 condition on the properties of the messages to read; the brokers apply it")
    ] = None
    time: Annotated[
        Literal["stored", "born"],
        option(
            "time of a record: when the broker stored the message, or when its producer created it (by the producer's clock)"
        ),
    ] = "stored"
    deduplicate: Annotated[
        bool, option("whether to leave out messages that a sink with delivery='idempotent' wrote again")
    ] = False  # fmt: skip
    deduplicate_window: Annotated[
        int,
        option(
            "number of messages before its start position that a reader checks to recognise messages that were written again",
            ge=0,
        ),
    ] = 100_000
    allocation: Annotated[
        Literal["averagely", "consistent_hash"],
        option("how queues are assigned to instances; must be the same in the whole group"),
    ] = "averagely"
    exclusive: Annotated[
        bool,
        option(
            "whether to lock queues on the brokers, so that never two instances read one queue; a killed instance then keeps "
            "its queues for 60 s"
        ),
    ] = False
    driver: Annotated[
        Literal["remoting", "native"],
        option(
            "client: remoting is headrace's own; native is rocketmq-client-python with librocketmq (push, at least once, "
            "light backend only)"
        ),
    ] = "remoting"
    native_library: Annotated[
        str | None, option("driver native: directory of librocketmq.so; default: the library path of the system")
    ] = None
    native_messages: Annotated[
        int, option("driver native: maximum number of unacknowledged messages; each needs a thread", ge=2, le=4096)
    ] = 256
    window: Annotated[
        int, option("number of pulls (of up to 32 messages) in flight per queue; limits memory", ge=1, le=1024)
    ] = 32
    topics_broker: Annotated[
        str | None,
        option(
            "master broker of the topics that the job creates for its shuffles and state; required if there are several"
        ),
    ] = None
    access_key: _AccessKey = None
    secret_key: _SecretKey = None
    security_token: _SecurityToken = None
    tls: _Tls = False
    tls_ca: _TlsCa = None
    tls_certificate: _TlsCertificate = None
    tls_key: _TlsKey = None
    tls_key_password: _TlsKeyPassword = None
    tls_check_host: _TlsCheckHost = True
    request_timeout: _RequestTimeout = timedelta(seconds=5)
    connect_timeout: _ConnectTimeout = timedelta(seconds=5)
    address_map: _AddressMap = None

    def validate(self) -> None:
        check_connection(self)
        if not self.topics:
            raise OptionError("the list of topics is empty", plugin=PLUGIN, option="topic")
        if self.tags is not None and self.sql is not None:
            raise OptionError(
                "a broker filters by tags or by an SQL condition, but not by both",
                plugin=PLUGIN,
                option="sql",
                hint="a condition can ask for tags too: TAGS = 'red' AND …",
            )
        self.message_filter()
        self._check_driver()

    def _check_driver(self) -> None:
        """Raise OptionError for options of one driver that are given with the other."""
        native = self.driver == "native"
        defaults = {found.name: found.default for found in msgspec.structs.fields(self)}
        for name in _NOT_NATIVE if native else _NATIVE_ONLY:
            if getattr(self, name) != defaults[name]:
                raise OptionError(
                    f"has no effect with driver={self.driver!r}",
                    plugin=PLUGIN,
                    option=name,
                    hint="leave it out" + (", or leave out driver='native'" if native else ", or driver='native'"),
                )

    @property
    def topics(self) -> list[str]:
        """The names of the topics, each once, in the order given."""
        return list(dict.fromkeys(name.strip() for name in self.topic.split(",") if name.strip()))

    def group_of(self, reader_name: str) -> str:
        """Return the consumer group; the default one is the reader's own.

        RocketMQ allows few characters in a group's name. If some are replaced, a hash keeps the names of two jobs apart.
        """
        if self.group:
            return self.group
        name = "-".join(["headrace", *filter(None, [reader_name]), *self.topics])
        allowed = _NOT_IN_GROUPS.sub("-", name)
        return name if allowed == name else f"{allowed}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"

    def message_filter(self) -> Filter:
        """Return the filter for the brokers. Raises OptionError."""
        try:
            if self.sql is not None:
                return Filter.by_sql(self.sql)
            if self.tags is None or self.tags.strip() == "*":
                return Filter.everything()
            return Filter.by_tags(*(tag.strip() for tag in self.tags.split("||")))
        except ConfigurationError as error:
            name = "tags" if self.sql is None else "sql"
            raise OptionError(str(error), plugin=PLUGIN, option=name, hint="tags='red || blue'") from error


class RocketMQSinkSettings(SinkSettings, frozen=True, kw_only=True):
    """Options of ``to_rocketmq``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("topic",)

    topic: Annotated[str, option("topic to write to")]
    name_servers: _NameServers
    format: Annotated[
        str, option("format of the message bodies: json, csv, raw, or any installed codec that encodes")
    ] = "json"
    format_options: Annotated[dict[str, Any], option("options of the format's codec")] = msgspec.field(
        default_factory=dict
    )
    key: Annotated[
        str | None,
        option("column whose value selects the queue; messages with the same key go to the same queue, in order"),
    ] = None
    tag: Annotated[str | None, option("column whose value is the message's tag")] = None
    keys: Annotated[
        list[str] | None, option("columns whose values become further message keys, for look-ups in RocketMQ's tools")
    ] = None
    properties: Annotated[
        list[str] | None, option("columns that become properties of the message; readers can filter by properties")
    ] = None
    delivery: Annotated[
        Literal["at_least_once", "idempotent"],
        option(
            "guarantee; with idempotent, a source with deduplicate=True can leave out messages that were written again"
        ),
    ] = "at_least_once"
    create_topic: Annotated[bool, option("whether to create the topic if it does not exist")] = False
    queues: Annotated[int, option("number of queues per broker of a created topic", ge=1)] = 4
    batch_bytes: Annotated[
        int,
        option(
            "maximum number of bytes in one request; must be below the brokers' maxMessageSize (default 4 MiB)", ge=1
        ),
    ] = 1024 * 1024
    access_key: _AccessKey = None
    secret_key: _SecretKey = None
    security_token: _SecurityToken = None
    tls: _Tls = False
    tls_ca: _TlsCa = None
    tls_certificate: _TlsCertificate = None
    tls_key: _TlsKey = None
    tls_key_password: _TlsKeyPassword = None
    tls_check_host: _TlsCheckHost = True
    request_timeout: _RequestTimeout = timedelta(seconds=5)
    connect_timeout: _ConnectTimeout = timedelta(seconds=5)
    address_map: _AddressMap = None

    def validate(self) -> None:
        check_connection(self)
        if not self.topic.strip():
            raise OptionError("the list of topics is empty", plugin=PLUGIN, option="topic")


RocketMQSettings = RocketMQSourceSettings | RocketMQSinkSettings


def check_connection(settings: RocketMQSettings) -> None:
    """Raise OptionError when the options for reaching the cluster do not go together. Reads no file."""
    try:
        parse_name_servers(settings.name_servers)
    except ConfigurationError as error:
        raise OptionError(str(error), plugin=PLUGIN, option="name_servers", hint="'host:9876'") from error
    if (settings.access_key is None) != (settings.secret_key is None):
        given, missing = ("access_key", "secret_key") if settings.secret_key is None else ("secret_key", "access_key")
        raise OptionError(f"is needed with {given}", plugin=PLUGIN, option=missing)
    if settings.security_token is not None and settings.access_key is None:
        raise OptionError("has no effect without access_key", plugin=PLUGIN, option="security_token")
    for name in ("tls_ca", "tls_certificate", "tls_key", "tls_key_password"):
        if getattr(settings, name) is not None and not settings.tls:
            raise OptionError("has no effect without TLS", plugin=PLUGIN, option=name, hint="tls=True")
    for name in ("request_timeout", "connect_timeout"):
        if getattr(settings, name) <= timedelta(0):
            raise OptionError("must be positive", plugin=PLUGIN, option=name)


def memberships_of(settings: RocketMQSourceSettings, group: str) -> list[str]:
    """Return the sets of queues that a member of the group shares. See ``GroupSource.memberships``.

    That is the whole group, whatever its topics: each member counts for every topic of the group, so queues of one topic would be assigned
    to members that read another one only, and nobody would read them.
    """
    servers = ";".join(sorted(settings.name_servers.replace(" ", "").split(";")))
    return [f"group {group!r} of RocketMQ at {servers}"]


def make_client(settings: RocketMQSettings) -> Client:
    """Return a client that connects when it is first used. Raises ConfigurationError for unusable TLS files."""
    tls, credentials = None, None
    if settings.tls:
        tls = Tls(
            ca_file=settings.tls_ca,
            cert_file=settings.tls_certificate,
            key_file=settings.tls_key,
            key_password=_revealed(settings.tls_key_password),
            check_host=settings.tls_check_host,
        )
    if settings.access_key is not None and settings.secret_key is not None:
        credentials = Credentials(settings.access_key, settings.secret_key.reveal(), _revealed(settings.security_token))
    return Client(
        settings.name_servers,
        credentials=credentials,
        tls=tls,
        timeout=settings.request_timeout,
        connect_timeout=settings.connect_timeout,
        address_map=settings.address_map,
        batch_bytes_max=settings.batch_bytes if isinstance(settings, RocketMQSinkSettings) else 1024 * 1024,
    )


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()
