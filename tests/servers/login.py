"""Names with passwords, for the variants of the servers that ask for them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Login:
    """A user's name and password (RocketMQ: access key and secret key); the password stays out of logs."""

    name: str
    password: str = field(repr=False)


def make_login(name: str) -> Login:
    """A login with a random password of hexadecimal digits, which needs no quoting anywhere."""
    return Login(name, secrets.token_hex(16))
