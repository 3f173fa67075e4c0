"""Names with passwords, for the variants of the servers that ask for them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from tests.servers.errors import TestServerError


@dataclass(frozen=True)
class Login:
    """A user's name and password (RocketMQ: access key and secret key); the password stays out of logs."""

    name: str
    password: str = field(repr=False)


def make_login(name: str) -> Login:
    """A login with a random password of hexadecimal digits, which needs no quoting anywhere."""
    return Login(name, secrets.token_hex(16))


def address_to_text(login: Login, host: str, port: int) -> str:
    """Write a login at a server as user:password@host:port, for an environment variable."""
    return f"{quote(login.name)}:{quote(login.password)}@{host}:{port}"


def address_from_text(text: str, variable: str, default_port: int) -> tuple[Login, str, int]:
    """Read what ``address_to_text`` writes; a special character in the password is %XX. Raises TestServerError."""
    parts = urlsplit(f"//{text}")
    if not (parts.hostname and parts.username):
        raise TestServerError(f"{variable} must be user:password@host:port")
    return Login(unquote(parts.username), unquote(parts.password or "")), parts.hostname, parts.port or default_port
