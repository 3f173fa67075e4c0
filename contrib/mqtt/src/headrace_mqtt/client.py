"""Makes clients of a broker, and decides which errors of the broker a person must fix."""

from __future__ import annotations

import os
import ssl

from headrace.foundation.errors import HeadraceError, JobError, RetriableError
from headrace.interfaces.connection_options import uses_tls
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from headrace_mqtt.settings import PLUGIN, MqttSettings, refused

#: Reason codes of MQTT 5 for which a retry is useless, with the option that causes them and a hint.
_FOR_PERSONS = {
    0x84: ("host", "the broker does not speak MQTT 5"),
    0x85: ("client_id", "the broker does not take this client id: choose another one"),
    0x86: ("password", "check user and password"),
    0x87: ("user", "check user and password, and that the broker's access control allows it"),
    0x8A: ("user", "the broker has banned this client"),
    0x8C: ("user", "the broker wants another kind of login"),
    0x8E: ("client_id", "another client has connected with the same client id: each needs its own"),
    0x8F: ("topic", "the broker takes no such topic filter"),
    0x9E: ("topic", "the broker has no shared subscriptions"),
    0xA2: ("topic", "the broker has no subscriptions with wildcards"),
}


def make_client(settings: MqttSettings, client_id: str, *, reconnects: bool = True) -> Client:
    """Return a client that is not connected. It acknowledges nothing by itself. Raises OptionError for files that cannot be read."""
    client = Client(
        CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTProtocolVersion.MQTTv5, manual_ack=True,
        reconnect_on_failure=reconnects,
    )  # fmt: skip
    if settings.user is not None:
        client.username_pw_set(settings.user, None if settings.password is None else settings.password.reveal())
    if uses_tls(settings):
        client.tls_set_context(_context(settings))
    client.reconnect_delay_set(min_delay=1, max_delay=10)
    return client


def port_of(settings: MqttSettings) -> int:
    """Return the port of the broker."""
    return settings.port or (8883 if uses_tls(settings) else 1883)


def place_of(settings: MqttSettings) -> str:
    """Return the broker's address for messages."""
    return f"the MQTT broker at {settings.host}:{port_of(settings)}"


def connect_properties(**values: int) -> Properties:
    """Return properties of a connection."""
    made = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(made, name, value)
    return made


def error_of(settings: MqttSettings, code: ReasonCode, what: str) -> HeadraceError:
    """Return the error for a reason code of the broker: JobError if a person must fix something, else
    RetriableError.
    """
    message = f"{place_of(settings)} {what}: {code}"
    if code.value in _FOR_PERSONS:
        option, hint = _FOR_PERSONS[code.value]
        return JobError(message, plugin=PLUGIN, option=option, hint=hint)
    return RetriableError(message, plugin=PLUGIN)


def error_of_socket(settings: MqttSettings, error: OSError) -> HeadraceError:
    """Return the error for a connection that could not be made."""
    message = f"{place_of(settings)} cannot be reached: {error}"
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = "name the file with the authority of the broker's certificate, and the broker as the certificate does"
        return JobError(message, plugin=PLUGIN, option="ssl_ca", hint=hint)
    return RetriableError(message, plugin=PLUGIN)


def _context(settings: MqttSettings) -> ssl.SSLContext:
    for name in ("ssl_ca", "ssl_certificate", "ssl_key"):
        path = getattr(settings, name)
        if path is not None and not os.access(path, os.R_OK):
            raise refused(name, f"{path!r} cannot be read", "name a file that the job's user may read")
    context = ssl.create_default_context(cafile=settings.ssl_ca)
    if settings.ssl_certificate is not None:
        try:
            context.load_cert_chain(settings.ssl_certificate, settings.ssl_key)
        except (OSError, ssl.SSLError) as error:
            raise refused(
                "ssl_certificate", f"the certificate or its key cannot be used: {error}", "PEM files are read"
            ) from error
    return context
