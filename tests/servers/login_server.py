"""Base of servers that are reached by host, port, user and password."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self, TypeVar

from tests.servers.login import Login, address_from_text, address_to_text
from tests.servers.server import Server

OptionsT = TypeVar("OptionsT")


@dataclass(kw_only=True)
class LoginServer(Server[OptionsT]):
    """A server with one address and a user who may do everything."""

    host: str
    port: int
    user: str
    """May do everything."""
    password: str = field(repr=False)

    default_port: ClassVar[int]
    """The port of an address in the environment variable that names none."""

    @classmethod
    def from_variable(cls, value: str) -> Self:
        """From user:password@host:port; a special character in the password is written as %XX."""
        login, host, port = address_from_text(value, cls.variable, cls.default_port)
        return cls(directory=None, host=host, port=port, user=login.name, password=login.password)

    def to_variable(self) -> str:
        """See Server.to_variable."""
        return address_to_text(Login(self.user, self.password), self.host, self.port)
