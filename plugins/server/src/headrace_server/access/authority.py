"""Users, tokens and sessions: the identity of a client."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import argon2
import sqlalchemy as sa
from headrace.foundation.clock import Clock
from headrace.foundation.errors import OptionError
from headrace.foundation.private_files import private_opener

from headrace_server.access.errors import AccessDeniedError
from headrace_server.access.limits import FailedLogins
from headrace_server.access.roles import Principal, Role
from headrace_server.access.tables import SESSIONS, TOKENS, USERS

#: Shown in front of each token, so that scanners of source code and our own refusals recognise one.
TOKEN_PREFIX = "hrt_"
TOKEN_PATTERN = re.compile(rf"{TOKEN_PREFIX}([0-9a-f]{{16}})_([\w-]{{43}})", re.ASCII)
_COOKIE_PATTERN = re.compile(r"[\w-]{43}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_PASSWORD_LENGTH_MIN = 12
#: Longer ones only cost time.
_PASSWORD_LENGTH_MAX = 1000
_SESSION_IDLE_MAX = timedelta(hours=12)
_SESSION_AGE_MAX = timedelta(days=7)
#: A session's last use is written no oftener: else each request would write.
_USED_GRAIN = timedelta(minutes=1)
#: Each hash of a password takes 64 MiB of memory.
_HASHES_AT_ONCE = 2


@dataclass(frozen=True)
class User:
    """A user, as lists show one. Times are seconds since the Unix epoch."""

    name: str
    role: Role
    created_at: float


@dataclass(frozen=True)
class Token:
    """A token, as lists show one: ``id`` is its public half. Times are seconds since the Unix epoch."""

    id: str
    name: str
    role: Role
    created_at: float
    expires_at: float | None


@dataclass(frozen=True)
class Session:
    """A session that has begun. ``cookie`` goes to the browser, and is kept nowhere else."""

    principal: Principal
    cookie: str = field(repr=False)
    csrf_token: str = field(repr=False)


class Authority:
    """Knows users, tokens and sessions in the server's database. Several threads may use it.

    Secrets of tokens and cookies have 256 random bits and are kept as SHA-256: nobody can try so many, so a slow hash would only
    make each request slow. Passwords are chosen by people and are kept as argon2id.
    """

    def __init__(self, engine: sa.Engine, clock: Clock, *, hasher: argon2.PasswordHasher | None = None) -> None:
        self.engine = engine
        self._clock = clock
        self._hasher = hasher or argon2.PasswordHasher()
        self._hashing = threading.Semaphore(_HASHES_AT_ONCE)
        self._failed = FailedLogins(clock)
        #: Compared when there is no such user, so that the time of the answer does not tell.
        self._nobody = self._hasher.hash(secrets.token_hex())

    # Users.

    def users(self) -> list[User]:
        """Return all users by name."""
        with self.engine.connect() as connection:
            rows = connection.execute(sa.select(USERS).order_by(USERS.c.name)).all()
        return [User(row.name, Role(row.role), row.created_at) for row in rows]

    def put_user(self, name: str, password: str | None, role: Role) -> None:
        """Make a user, or give it another password and role. Its sessions end. Raises OptionError for a name or password.

        Without a password, a user that is there keeps the one it has.
        """
        _check_name(name)
        values = {"role": int(role), **self._hashed(password)}
        with self.engine.begin() as transaction:
            known = transaction.execute(sa.update(USERS).where(USERS.c.name == name).values(values)).rowcount
            if not known and password is None:
                raise OptionError(
                    f"there is no user {name!r}", option="password", hint="to create the user, give a password"
                )
            if not known:
                transaction.execute(sa.insert(USERS).values(name=name, created_at=self._clock.now(), **values))
            self._end_sessions(transaction, "user", name)

    def _hashed(self, password: str | None) -> Mapping[str, str]:
        if password is None:
            return {}
        if not _PASSWORD_LENGTH_MIN <= len(password) <= _PASSWORD_LENGTH_MAX:
            raise OptionError(
                "the length of the password is not allowed",
                option="password",
                hint=f"{_PASSWORD_LENGTH_MIN} to {_PASSWORD_LENGTH_MAX} characters",
            )
        with self._hashing:
            return {"password_hash": self._hasher.hash(password)}

    def remove_user(self, name: str) -> bool:
        """Remove a user and end its sessions. Return whether there was one. Tokens belong to nobody and stay."""
        with self.engine.begin() as transaction:
            self._end_sessions(transaction, "user", name)
            return bool(transaction.execute(sa.delete(USERS).where(USERS.c.name == name)).rowcount)

    # Tokens.

    def tokens(self) -> list[Token]:
        """Return all tokens, the newest first; their secrets are not known."""
        with self.engine.connect() as connection:
            rows = connection.execute(sa.select(TOKENS).order_by(TOKENS.c.created_at.desc(), TOKENS.c.id)).all()
        return [Token(row.id, row.name, Role(row.role), row.created_at, row.expires_at) for row in rows]

    def make_token(self, name: str, role: Role, *, lifetime: timedelta | None = None) -> str:
        """Return a new token. It is shown only once: only its hash is stored. ``name`` tells people its purpose."""
        _check_name(name)
        public, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        now = self._clock.now()
        expires_at = None if lifetime is None else now + lifetime.total_seconds()
        row = {"id": public, "digest": _digest(secret), "name": name, "role": int(role), "created_at": now}
        with self.engine.begin() as transaction:
            transaction.execute(sa.insert(TOKENS).values(**row, expires_at=expires_at))
        return f"{TOKEN_PREFIX}{public}_{secret}"

    def revoke_token(self, token_id: str) -> bool:
        """Remove a token by its public id, and end its sessions. Holds from the next request on. Return whether there was one."""
        with self.engine.begin() as transaction:
            self._end_sessions(transaction, "token", token_id)
            return bool(transaction.execute(sa.delete(TOKENS).where(TOKENS.c.id == token_id)).rowcount)

    def principal_of_token(self, token: str) -> Principal | None:
        """Return whose token it is, or None for one that is wrong, was revoked or has expired."""
        found = TOKEN_PATTERN.fullmatch(token)
        if found is None:
            return None
        with self.engine.connect() as connection:
            row = connection.execute(sa.select(TOKENS).where(TOKENS.c.id == found[1])).first()
        # Compared in constant time, also for an id that is not there.
        fits = hmac.compare_digest(_digest(found[2]), row.digest if row is not None else _digest(""))
        if row is None or not fits or (row.expires_at is not None and row.expires_at <= self._clock.now()):
            return None
        return Principal(row.name, Role(row.role), "token")

    def local_token(self, path: Path) -> str:
        """Return the token of this machine's user, in a file that only the user can read; make it if it is missing or void.

        The server calls it when it starts. Raises OptionError for a file that others can read.
        """
        if path.exists():
            if path.stat().st_mode & 0o077:
                raise OptionError(
                    f"other users can read the token in {str(path)!r}", option="token",
                    hint="remove the file; the server writes a new token",
                )  # fmt: skip
            token = path.read_text(encoding="ascii").strip()
            if self.principal_of_token(token) is not None:
                return token
        token = self.make_token("local", Role.AUTHOR)
        beside = path.with_name(f"{path.name}.new")
        beside.unlink(missing_ok=True)
        with open(beside, "x", encoding="ascii", opener=private_opener) as file:
            file.write(token + "\n")
        os.replace(beside, path)
        return token

    # Sessions.

    def log_in(self, name: str, password: str, *, address: str, old_cookie: str | None = None) -> Session:
        """Begin a session. It gets a new cookie; a session that the browser had ends. Raises AccessDeniedError.

        Takes some 50 ms of CPU and 64 MiB: call it in a thread.
        """
        self._failed.attempt(name, address)
        with self.engine.connect() as connection:
            row = connection.execute(sa.select(USERS).where(USERS.c.name == name)).first()
        fits = self._verify(row.password_hash if row is not None else self._nobody, password)
        if row is None or not fits:
            raise AccessDeniedError(401, "the name or the password is wrong")
        self._failed.succeeded(name, address)
        return self._begin_session(Principal(name, Role(row.role), "session"), "user", name, old_cookie)

    def log_in_by_token(self, token: str, *, address: str, old_cookie: str | None = None) -> Session:
        """Begin a session of whoever has a token, as ``log_in`` does for a user. It ends with the token. Raises AccessDeniedError."""
        self._failed.attempt(None, address)
        found = self.principal_of_token(token)
        if found is None:
            raise AccessDeniedError(401, "the token is unknown, was revoked or has expired")
        self._failed.succeeded(None, address)
        token_id = token.split("_")[1]
        return self._begin_session(Principal(found.name, found.role, "session"), "token", token_id, old_cookie)

    def _begin_session(self, principal: Principal, kind: str, owner: str, old_cookie: str | None) -> Session:
        if old_cookie is not None:
            self.log_out(old_cookie)
        cookie, now = secrets.token_urlsafe(32), self._clock.now()
        row = {"digest": _digest(cookie), "kind": kind, "owner": owner, "created_at": now, "used_at": now}
        with self.engine.begin() as transaction:
            self._remove_expired(transaction, now)
            transaction.execute(sa.insert(SESSIONS).values(**row))
        return Session(principal, cookie, _csrf_token(cookie))

    def log_out(self, cookie: str) -> None:
        """End a session. An unknown cookie is no error."""
        with self.engine.begin() as transaction:
            transaction.execute(sa.delete(SESSIONS).where(SESSIONS.c.digest == _digest(cookie)))

    def session_of(self, cookie: str) -> Session | None:
        """Return the session of a cookie, or None. The role is that which the user or token has now."""
        if not _COOKIE_PATTERN.fullmatch(cookie):
            return None
        digest, now = _digest(cookie), self._clock.now()
        with self.engine.connect() as connection:
            row = connection.execute(sa.select(SESSIONS).where(SESSIONS.c.digest == digest)).first()
            if row is None or not self._lives(row.created_at, row.used_at, now):
                return None
            principal = self._principal_of_session(connection, row.kind, row.owner, now)
        if principal is None:
            return None
        if now - row.used_at > _USED_GRAIN.total_seconds():
            with self.engine.begin() as transaction:
                transaction.execute(sa.update(SESSIONS).where(SESSIONS.c.digest == digest).values(used_at=now))
        return Session(principal, cookie, _csrf_token(cookie))

    @staticmethod
    def _principal_of_session(connection: sa.Connection, kind: str, owner: str, now: float) -> Principal | None:
        if kind == "user":
            row = connection.execute(sa.select(USERS.c.name, USERS.c.role).where(USERS.c.name == owner)).first()
        else:
            unexpired = sa.or_(TOKENS.c.expires_at.is_(None), TOKENS.c.expires_at > now)
            wanted = sa.select(TOKENS.c.name, TOKENS.c.role).where(TOKENS.c.id == owner, unexpired)
            row = connection.execute(wanted).first()
        return None if row is None else Principal(row.name, Role(row.role), "session")

    @staticmethod
    def _end_sessions(transaction: sa.Connection, kind: str, owner: str) -> None:
        transaction.execute(sa.delete(SESSIONS).where(SESSIONS.c.kind == kind, SESSIONS.c.owner == owner))

    @staticmethod
    def _lives(created_at: float, used_at: float, now: float) -> bool:
        return now - created_at < _SESSION_AGE_MAX.total_seconds() and now - used_at < _SESSION_IDLE_MAX.total_seconds()

    @staticmethod
    def _remove_expired(transaction: sa.Connection, now: float) -> None:
        old = SESSIONS.c.created_at < now - _SESSION_AGE_MAX.total_seconds()
        idle = SESSIONS.c.used_at < now - _SESSION_IDLE_MAX.total_seconds()
        transaction.execute(sa.delete(SESSIONS).where(sa.or_(old, idle)))

    def _verify(self, hashed: str, password: str) -> bool:
        if len(password) > _PASSWORD_LENGTH_MAX:
            return False
        with self._hashing:
            try:
                return self._hasher.verify(hashed, password)
            except argon2.exceptions.VerifyMismatchError:
                return False


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _csrf_token(cookie: str) -> str:
    # Made from the cookie, so that it need not be kept, and says nothing about it.
    return hmac.new(cookie.encode(), b"headrace csrf", hashlib.sha256).hexdigest()


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"{name[:70]!r} is not a name", option="name", hint="letters, digits and . _ @ -, up to 64, beginning with a letter or digit"
        )  # fmt: skip
