"""Users, tokens and sessions in the database, and guesses of passwords."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Literal

import argon2
import pytest
import sqlalchemy as sa
from access_world import PASSWORD, World
from headrace.foundation.errors import OptionError
from headrace_server.access import AccessDeniedError, Authority, Role
from headrace_server.access.limits import FailedLogins
from headrace_server.access.messages import session_cookie
from headrace_server.access.tables import SESSIONS, TOKENS, USERS


def test_nothing_that_lets_in_is_in_the_database(world: World) -> None:
    token = world.authority.make_token("ci", Role.VIEWER)
    world.authority.put_user("ann", PASSWORD, Role.AUTHOR)
    session = world.authority.log_in("ann", PASSWORD, address="a")
    with world.engine.connect() as connection:
        kept = str([connection.execute(sa.select(table)).all() for table in (USERS, TOKENS, SESSIONS)])
    assert "ann" in kept
    assert "$argon2id$" in kept
    for secret in (PASSWORD, token.split("_", 2)[2], session.cookie, session.csrf_token):
        assert secret not in kept
        assert secret not in repr(session)


def test_passwords_are_hashed_with_the_librarys_own_parameters(world: World) -> None:
    """64 MiB and 3 passes of argon2id are what RFC 9106 recommends, and what the library takes unless told otherwise."""
    hashed = Authority(world.engine, world.clock)._nobody
    parameters = argon2.extract_parameters(hashed)
    assert (parameters.type, parameters.memory_cost >= 65536, parameters.time_cost >= 3) == (argon2.Type.ID, True, True)


def test_a_login_ends_the_session_that_the_browser_had_and_takes_no_cookie_from_it(world: World) -> None:
    """Session fixation: an attacker plants a cookie that he knows, and waits until the victim logs in."""
    world.authority.put_user("eve", PASSWORD, Role.VIEWER)
    world.authority.put_user("ann", PASSWORD, Role.AUTHOR)
    planted = world.authority.log_in("eve", PASSWORD, address="a").cookie
    for old in (planted, "x" * 43):
        begun = world.authority.log_in("ann", PASSWORD, address="a", old_cookie=old)
        assert begun.cookie != old
        assert world.authority.session_of(old) is None
        assert world.authority.session_of(begun.cookie) == begun


def test_sessions_end(world: World) -> None:
    authority, clock = world.authority, world.clock
    authority.put_user("ann", PASSWORD, Role.AUTHOR)

    def cookie() -> str:
        return authority.log_in("ann", PASSWORD, address="a").cookie

    used = cookie()
    for _ in range(13):  # used every twelve hours less a second, until a week is over
        clock.advance(12 * 3600 - 1)
        assert authority.session_of(used) is not None
    clock.advance(12 * 3600 - 1)
    assert authority.session_of(used) is not None
    clock.advance(13)
    assert authority.session_of(used) is not None
    clock.advance(1)
    assert authority.session_of(used) is None
    idle = cookie()
    clock.advance(12 * 3600)
    assert authority.session_of(idle) is None
    out = cookie()
    authority.log_out(out)
    assert authority.session_of(out) is None
    for change in (
        lambda: authority.put_user("ann", PASSWORD, Role.VIEWER),
        lambda: authority.remove_user("ann"),
    ):
        begun = cookie()
        change()
        assert authority.session_of(begun) is None
    with world.engine.connect() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(SESSIONS)).scalar_one() == 0


def test_a_wrong_name_and_a_wrong_password_look_the_same_and_cost_the_same(world: World) -> None:
    world.authority.put_user("ann", PASSWORD, Role.AUTHOR)
    calls: list[str] = []

    class Counting(argon2.PasswordHasher):
        def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:
            calls.append(str(hash))
            return super().verify(hash, password)

    authority = Authority(world.engine, world.clock, hasher=Counting(time_cost=1, memory_cost=8, parallelism=1))
    said = []
    for name in ("ann", "bob", "", "ann' --"):
        with pytest.raises(AccessDeniedError) as caught:
            authority.log_in(name, "wrong", address=name)
        said.append(str(caught.value))
    assert set(said) == {"the name or the password is wrong"}
    assert len(calls) == 4


def test_guesses_of_passwords_are_slowed_down(world: World) -> None:
    world.authority.put_user("ann", PASSWORD, Role.AUTHOR)

    def guess(address: str, password: str = "wrong", name: str = "ann") -> int:
        with pytest.raises(AccessDeniedError) as caught:
            world.authority.log_in(name, password, address=address)
        return caught.value.status

    assert [guess("a") for _ in range(6)] == [401] * 5 + [429]
    assert guess("other") == 429  # the name must wait from wherever it comes
    assert guess("a", name="bob") == 429  # and the address, whatever name it says
    assert guess("other", PASSWORD) == 429  # also the right password
    world.clock.advance(2)
    assert world.authority.log_in("ann", PASSWORD, address="other").principal.name == "ann"
    # The waits double, up to 15 minutes: a day has some 100 tries.
    tries = 0
    for _ in range(24 * 3600):
        world.clock.advance(1)
        tries += guess("a") == 401
    assert 80 < tries < 130


def test_a_guesser_who_goes_on_for_weeks_waits_as_long_each_time(world: World) -> None:
    failed = FailedLogins(world.clock)
    for number in range(2_000):
        world.clock.advance(900)
        failed.attempt("ann", "a")
        if number > 20:
            with pytest.raises(AccessDeniedError, match="too many failed logins"):
                failed.attempt("ann", "a")


def test_a_guesser_with_an_account_of_his_own_is_slowed_down_too(world: World) -> None:
    world.authority.put_user("eve", PASSWORD, Role.VIEWER)
    statuses = []
    for number in range(20):
        try:
            world.authority.log_in("eve", PASSWORD, address="a")
            world.authority.log_in(f"victim{number}", "wrong", address="a")
        except AccessDeniedError as error:
            statuses.append(error.status)
    assert statuses.count(401) <= 5


def test_many_guesses_at_once_are_not_all_the_first(world: World) -> None:
    world.authority.put_user("ann", PASSWORD, Role.AUTHOR)

    def guess(number: int) -> int:
        try:
            world.authority.log_in("ann", f"wrong{number}", address="a")
        except AccessDeniedError as error:
            return error.status
        return 200

    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(guess, range(64)))
    assert statuses.count(401) == 5
    assert statuses.count(429) == 59


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "../a", "-a", "a" * 65, "ä", "a'", "a\x00"])
def test_names_that_could_deceive_are_refused(world: World, name: str) -> None:
    with pytest.raises(OptionError, match="is not a name"):
        world.authority.put_user(name, PASSWORD, Role.VIEWER)
    with pytest.raises(OptionError, match="is not a name"):
        world.authority.make_token(name, Role.VIEWER)


@pytest.mark.parametrize("password", ["", "hush", "x" * 11, "x" * 1001])
def test_passwords_out_of_bounds_are_refused_without_being_shown(world: World, password: str) -> None:
    with pytest.raises(OptionError, match="length of the password") as caught:
        world.authority.put_user("ann", password, Role.VIEWER)
    assert not password or password not in str(caught.value)


def test_the_local_token_is_in_a_file_of_this_user_alone(world: World, tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = world.authority.local_token(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert world.authority.local_token(path) == token
    found = world.authority.principal_of_token(token)
    assert found is not None
    assert found.role is Role.AUTHOR
    world.authority.revoke_token(token.split("_")[1])
    assert world.authority.local_token(path) != token
    path.chmod(0o640)
    with pytest.raises(OptionError, match="other users can read the token"):
        world.authority.local_token(path)


def test_a_token_lives_as_long_as_it_was_made_for(world: World) -> None:
    token = world.authority.make_token("ci", Role.VIEWER, lifetime=timedelta(days=1))
    world.clock.advance(86_399)
    assert world.authority.principal_of_token(token) is not None
    world.clock.advance(1)
    assert world.authority.principal_of_token(token) is None


def test_the_cookie_of_a_session_is_closed_to_scripts_and_other_sites() -> None:
    plain, secure = session_cookie("abc", secure=False)[1], session_cookie("abc", secure=True)[1]
    assert plain == b"headrace_session=abc; Path=/; HttpOnly; SameSite=Strict"
    assert secure == b"__Host-headrace=abc; Path=/; HttpOnly; SameSite=Strict; Secure"
    assert session_cookie("", secure=False)[1].endswith(b"; Max-Age=0")
