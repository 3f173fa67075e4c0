"""Endpoints for users, tokens and the audit log. All of them need the role author, except the one about the client itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

import msgspec
from headrace.foundation.errors import JobError

from headrace_server.access.audit import AuditEntry, AuditLog
from headrace_server.access.authority import Authority, Token
from headrace_server.access.roles import Role
from headrace_server.api.endpoints import Asked, Change, Endpoint, NotThereError, number_of

RoleName = Literal["viewer", "operator", "author"]
_ENTRIES_MAX = 1_000


class WhoView(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks; ``kind`` is ``token`` or ``session``."""

    name: str
    role: RoleName
    kind: str


class UserView(msgspec.Struct, frozen=True, kw_only=True):
    """A user."""

    name: str
    role: RoleName
    created_seconds: float


class UserBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The role of a user, and its password; without one a user keeps that it has."""

    role: RoleName
    password: str | None = None

    def __repr__(self) -> str:
        return f"UserBody(role={self.role!r})"


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """A token, without its secret."""

    id: str
    name: str
    role: RoleName
    created_seconds: float
    expires_seconds: float | None


class TokenBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to be made: its purpose and its lifetime; without a lifetime it does not expire."""

    name: str
    role: RoleName
    lifetime_seconds: float | None = None


class NewToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that was made. It is shown this once."""

    token: str

    def __repr__(self) -> str:
        return "NewToken(***)"


class AuditView(msgspec.Struct, frozen=True, kw_only=True):
    """One change; ``difference`` is a unified diff."""

    number: int
    time_seconds: float
    who: str
    role: str
    action: str
    target: str
    difference: str


class AccessHandlers:
    """The functions of these endpoints."""

    def __init__(self, authority: Authority, audit: AuditLog) -> None:
        self._authority = authority
        self._audit = audit

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints, with the role that each needs."""
        author, user, token = Role.AUTHOR, "/v1/users/{user}", "/v1/tokens/{token}"
        of_user, of_token = _part("user"), _part("token")
        page = {"target": "what was changed", "before": "the number of an entry", "limit": "how many; 100 if left out"}
        return [
            Endpoint("GET", "/v1/me", Role.VIEWER, "Who asks, and the role", self.who, returns=WhoView),
            Endpoint("GET", "/v1/users", author, "List users", self.users, returns=list[UserView]),
            Endpoint(
                "PUT", user, author, "Make a user, or change its role and password", self.put_user,
                body=UserBody, returns=UserView, change=Change("user put", of_user, self._user_now, _role_after),
            ),
            Endpoint(
                "DELETE", user, author, "Remove a user and end its sessions", self.remove_user,
                returns=dict[str, str], change=Change("user remove", of_user, self._user_now, _nothing),
            ),
            Endpoint("GET", "/v1/tokens", author, "List tokens, without their secrets", self.tokens, returns=list[TokenView]),
            Endpoint(
                "POST", "/v1/tokens", author, "Make a token", self.make_token,
                body=TokenBody, returns=NewToken, status=201,
                change=Change("token make", lambda asked: asked.body.name),
            ),
            Endpoint(
                "DELETE", token, author, "Revoke a token", self.revoke_token,
                returns=dict[str, str], change=Change("token revoke", of_token, self._token_now, _nothing),
            ),
            Endpoint("GET", "/v1/audit", author, "The changes, newest first", self.audit, returns=list[AuditView], query=page),
        ]  # fmt: skip

    def who(self, asked: Asked) -> WhoView:
        """Return the identity and role of the client."""
        found = asked.principal
        return WhoView(name=found.name, role=_name_of(found.role), kind=found.kind)

    def users(self, asked: Asked) -> list[UserView]:
        """List users."""
        return [
            UserView(name=each.name, role=_name_of(each.role), created_seconds=each.created_at)
            for each in self._authority.users()
        ]

    def put_user(self, asked: Asked) -> UserView:
        """Make a user, or change its role and password. Its sessions end."""
        body: UserBody = asked.body
        self._authority.put_user(asked.path["user"], body.password, Role.of(body.role))
        return next(each for each in self.users(asked) if each.name == asked.path["user"])

    def remove_user(self, asked: Asked) -> dict[str, str]:
        """Remove a user and end its sessions."""
        if not self._authority.remove_user(asked.path["user"]):
            raise NotThereError(f"there is no user {asked.path['user']!r}", hint="headrace users list")
        return {"removed": asked.path["user"]}

    def tokens(self, asked: Asked) -> list[TokenView]:
        """List tokens, without their secrets."""
        return [_view(each) for each in self._authority.tokens()]

    def make_token(self, asked: Asked) -> NewToken:
        """Make a token."""
        body: TokenBody = asked.body
        if body.lifetime_seconds is not None and not 1 <= body.lifetime_seconds <= 1e10:
            raise JobError(f"lifetime_seconds={body.lifetime_seconds:g}: expected 1 or more", option="lifetime_seconds")
        lifetime = None if body.lifetime_seconds is None else timedelta(seconds=body.lifetime_seconds)
        return NewToken(token=self._authority.make_token(body.name, Role.of(body.role), lifetime=lifetime))

    def revoke_token(self, asked: Asked) -> dict[str, str]:
        """Revoke a token."""
        if not self._authority.revoke_token(asked.path["token"]):
            raise NotThereError(
                f"there is no token {asked.path['token']!r}", hint="headrace tokens list shows their ids"
            )
        return {"revoked": asked.path["token"]}

    def audit(self, asked: Asked) -> list[AuditView]:
        """Return the changes, newest first."""
        before, limit = number_of(asked, "before", 2**62), number_of(asked, "limit", _ENTRIES_MAX)
        entries = self._audit.entries(target=asked.query.get("target"), before=before, count_max=limit or 100)
        return [_audit_view(each) for each in entries]

    def _user_now(self, asked: Asked) -> Mapping[str, str] | None:
        found = next((each for each in self._authority.users() if each.name == asked.path["user"]), None)
        return None if found is None else {"role": _name_of(found.role)}

    def _token_now(self, asked: Asked) -> Any:
        found = next((each for each in self._authority.tokens() if each.id == asked.path["token"]), None)
        return None if found is None else {"name": found.name, "role": _name_of(found.role)}


def _audit_view(entry: AuditEntry) -> AuditView:
    return AuditView(
        number=entry.number, time_seconds=entry.at, who=entry.who, role=entry.role, action=entry.action,
        target=entry.target, difference=entry.difference,
    )  # fmt: skip


def _view(token: Token) -> TokenView:
    return TokenView(
        id=token.id, name=token.name, role=_name_of(token.role), created_seconds=token.created_at,
        expires_seconds=token.expires_at,
    )  # fmt: skip


def _name_of(role: Role) -> RoleName:
    names: dict[Role, RoleName] = {Role.VIEWER: "viewer", Role.OPERATOR: "operator", Role.AUTHOR: "author"}
    return names[role]


def _part(name: str) -> Any:
    return lambda asked: asked.path[name]


def _nothing(_: Asked) -> None:
    return None


def _role_after(asked: Asked) -> Mapping[str, str]:
    # The new password is not shown, that there is one is.
    return {"role": asked.body.role, **({"password": "changed"} if asked.body.password is not None else {})}
