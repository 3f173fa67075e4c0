"""Options of source and sink."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from headrace.foundation.errors import OptionError
from headrace.interfaces.connection_options import (
    Password,
    PlaintextLogin,
    Ssl,
    SslCa,
    SslCertificate,
    SslKey,
    User,
    check_client_key,
    check_login,
)
from headrace.interfaces.settings import option
from headrace.interfaces.sink import SinkSettings
from headrace_buffer import BufferedSourceSettings

PLUGIN = "mqtt"
_TOPIC_BYTES_MAX = 65_535

# What source and sink have in common is described once.
_Host = Annotated[str, option("address of the broker")]
_Port = Annotated[int | None, option("port of the broker; default: 1883, with TLS 8883")]
_ClientId = Annotated[
    str | None, option("client id, under which the broker keeps the session; default: headrace-NAMESPACE.PIPELINE")
]
_KeepAlive = Annotated[timedelta, option("how often a connection without messages is checked")]


class MqttSourceSettings(BufferedSourceSettings, frozen=True, kw_only=True):
    """Options of ``from_mqtt``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("topic",)

    topic: Annotated[
        str,
        option("topic filters to subscribe to, separated by commas; + stands for one level, # for all further ones"),
    ]
    host: _Host = "localhost"
    port: _Port = None
    client_id: _ClientId = None
    qos: Annotated[
        Literal[0, 1],
        option("quality of service of the subscriptions: 0: the broker forgets what is on its way; 1: at least once"),
    ] = 1
    retained: Annotated[
        Literal["new", "always", "never"],
        option("when the broker's retained messages come: with a new subscription, at each connection, or never"),
    ] = "new"
    session_expiry: Annotated[
        timedelta, option("how long the broker keeps the session, and messages for it, while the job is not connected")
    ] = timedelta(days=7)
    receive_maximum: Annotated[
        int, option("how many messages the broker may send before they are acknowledged", ge=1, le=65_535)
    ] = 1_000
    user: User = None
    password: Password = None
    plaintext_login: PlaintextLogin = False
    ssl: Ssl = False
    ssl_ca: SslCa = None
    ssl_certificate: SslCertificate = None
    ssl_key: SslKey = None
    keep_alive: _KeepAlive = timedelta(seconds=30)

    def validate(self) -> None:
        check_connection(self)
        if not self.topics:
            raise refused("topic", "the list of topics is empty", "topic='sensors/#'")
        for topic in self.topics:
            _check_filter(topic)
        if not timedelta(0) <= self.session_expiry < timedelta(seconds=2**32 - 1):
            raise refused(
                "session_expiry", f"{self.session_expiry} is not between 0 s and 136 years", "session_expiry='7 d'"
            )

    @property
    def topics(self) -> tuple[str, ...]:
        """The topic filters, each once, in the order given."""
        return tuple(dict.fromkeys(name.strip() for name in self.topic.split(",") if name.strip()))


class MqttSinkSettings(SinkSettings, frozen=True, kw_only=True):
    """Options of ``to_mqtt``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("topic", "topic_column")

    topic: Annotated[
        str | None, option("topic that all rows are published to; either this or topic_column is given")
    ] = None
    topic_column: Annotated[str | None, option("text column with the topic of each row; it is not in the message")] = (
        None
    )
    host: _Host = "localhost"
    port: _Port = None
    client_id: Annotated[
        str | None, option("client id; default: one at random, as nothing of a session is needed later")
    ] = None
    format: Annotated[str, option("format of the messages: json, csv, raw, or any installed codec that encodes")] = (
        "json"
    )
    format_options: Annotated[dict[str, Any], option("options of the format's codec")] = msgspec.field(
        default_factory=dict
    )
    qos: Annotated[
        Literal[1, 2], option("quality of service of the messages: 1: at least once, 2: each once per call")
    ] = 1
    retain: Annotated[bool, option("whether the broker keeps the last message of each topic for later subscribers")] = (
        False
    )
    message_expiry: Annotated[
        timedelta | None,
        option("after which time the broker drops a message that it could not deliver; default: never"),
    ] = None
    publish_timeout: Annotated[timedelta, option("how long to wait for the broker's acknowledgement of a batch")] = (
        timedelta(seconds=30)
    )
    user: User = None
    password: Password = None
    plaintext_login: PlaintextLogin = False
    ssl: Ssl = False
    ssl_ca: SslCa = None
    ssl_certificate: SslCertificate = None
    ssl_key: SslKey = None
    keep_alive: _KeepAlive = timedelta(seconds=30)

    def validate(self) -> None:
        check_connection(self)
        if (self.topic is None) == (self.topic_column is None):
            raise refused("topic", "give either topic or topic_column", "topic='alerts', or topic_column='topic'")
        if self.topic is not None and (reason := unfit_topic(self.topic)):
            raise refused("topic", reason, "topic='alerts'")


MqttSettings = MqttSourceSettings | MqttSinkSettings


def refused(option: str, reason: str, hint: str) -> OptionError:
    """Return the error for an option that cannot be used as it is."""
    return OptionError(reason, plugin=PLUGIN, option=option, hint=hint)


def unfit_topic(topic: str) -> str | None:
    """Return why messages cannot be published to a topic of this name; None: they can."""
    if not topic:
        return "the topic is empty"
    if "+" in topic or "#" in topic or "\0" in topic:
        return f"the topic {topic!r} has one of the characters +, # and NUL"
    if len(topic.encode(errors="replace")) > _TOPIC_BYTES_MAX:
        return f"the topic has more than {_TOPIC_BYTES_MAX} bytes"
    return None


def check_connection(settings: MqttSettings) -> None:
    """Raise OptionError when the options for reaching the broker do not go together."""
    if settings.port is not None and not 1 <= settings.port <= 65_535:
        raise refused("port", f"{settings.port} is not a port", "port=1883")
    check_client_key(settings, plugin=PLUGIN)
    if settings.password is not None and settings.user is None:
        raise refused("password", "it can be used only together with user", "give the user too")
    if not timedelta(seconds=1) <= settings.keep_alive <= timedelta(seconds=65_535):
        raise refused("keep_alive", f"{settings.keep_alive} is not between 1 s and 18 h", "keep_alive='30 s'")
    check_login(settings, plugin=PLUGIN)


def _check_filter(topic: str) -> None:
    levels = topic.split("/")
    wrong = any(
        ("#" in level and (level != "#" or at < len(levels) - 1)) or ("+" in level and level != "+")
        for at, level in enumerate(levels)
    )
    if wrong or "\0" in topic:
        raise refused(
            "topic",
            f"{topic!r} is not a topic filter",
            "+ stands for one whole level, # for all levels at the end: 'sensors/+/#'",
        )
