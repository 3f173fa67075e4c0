"""The few administrative requests that the RocketMQ test server needs, in RocketMQ's remoting protocol.

A frame is: length (4 bytes, big endian, not counting itself), length of the header (4 bytes; the first byte is the
header's encoding, 0 for JSON), header, body. Specification: apache/rocketmq, class RemotingCommand.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.servers.login import Login

SUCCESS = 0
NO_PERMISSION = 16

UPDATE_AND_CREATE_TOPIC = 17
UPDATE_BROKER_CONFIG = 25
GET_ROUTE = 105
CREATE_USER = 3001
GET_USER = 3004
# MQVersion.V4_9_4: from this client version on the name server answers GET_ROUTE in standard JSON.
_CLIENT_VERSION = 401


@dataclass(frozen=True)
class Reply:
    """An answer: code 0 is success, others are told apart by RocketMQ's ResponseCode."""

    code: int
    remark: str | None
    body: bytes


def request(
    address: str,
    code: int,
    fields: Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    login: Login | None = None,
    tls: ssl.SSLContext | None = None,
) -> Reply:
    """Send one request over a connection of its own and wait up to 5 s for its answer; raises OSError.

    `login` (access key and secret key) signs the request, `tls` encrypts the connection.
    """
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 5) as plain:
        connection = tls.wrap_socket(plain, server_hostname=host) if tls else plain
        with connection, connection.makefile("rb") as stream:
            connection.sendall(_encode(code, _signed(dict(fields or {}), body, login), body))
            prefix = stream.read(8)
            if len(prefix) < 8:
                raise ConnectionError(f"{address} closed the connection on request {code}")
            frame_length, header_length = struct.unpack(">ii", prefix)
            header: dict[str, Any] = json.loads(stream.read(header_length))
            return Reply(header["code"], header.get("remark"), stream.read(frame_length - 4 - header_length))


def _signed(fields: dict[str, str], body: bytes, login: Login | None) -> dict[str, str]:
    """Add the ACL signature: HMAC-SHA1 over the values of the fields, in the order of their names, and the body."""
    if login is None:
        return fields
    fields = {**fields, "AccessKey": login.name}
    content = "".join(value for _, value in sorted(fields.items())).encode() + body
    signature = hmac.new(login.password.encode(), content, hashlib.sha1).digest()
    return {**fields, "Signature": base64.b64encode(signature).decode()}


def _encode(code: int, fields: Mapping[str, str], body: bytes) -> bytes:
    command = {
        "code": code,
        "language": "PYTHON",
        "version": _CLIENT_VERSION,
        "opaque": 1,
        "flag": 0,
        "serializeTypeCurrentRPC": "JSON",
        "extFields": fields,
    }
    header = json.dumps(command).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body
