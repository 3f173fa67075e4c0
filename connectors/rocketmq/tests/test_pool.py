"""Connections opened when needed, and again with pauses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

import pytest
from headrace_rocketmq.errors import ClientClosedError, ConnectionFailedError
from headrace_rocketmq.pool import ConnectionPool

from .test_connection import Clock
from .wire_server import Peer, echo, end, serving, silence


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool(clock: Clock) -> Iterator[ConnectionPool]:
    with closing(ConnectionPool(clock=clock)) as pool:
        yield pool


def unused_address() -> str:
    with serving(silence) as server:
        return server.address


def test_one_connection_for_each_address(pool: ConnectionPool) -> None:
    with serving(echo) as server:
        first = pool.get(server.address)
        assert pool.get(server.address) is first
        assert pool.open_connections() == [first]


def test_a_lost_connection_is_opened_again_at_once(pool: ConnectionPool) -> None:
    lost: list[str] = []
    pool.on_lost(lost.append)
    with serving(echo) as server:
        first = pool.get(server.address)
        first.call(1, timeout_s=10)
        first.fail("for a test")
        assert lost == [server.address]
        assert pool.is_troubled(server.address)
        second = pool.get(server.address)
        assert second is not first
        assert second.call(1, timeout_s=10).code == 0
        assert not pool.is_troubled(server.address)


def test_an_address_that_refuses_is_not_tried_in_a_hurry(pool: ConnectionPool, clock: Clock) -> None:
    address = unused_address()
    with pytest.raises(ConnectionFailedError, match=address) as first:
        pool.get(address)
    assert first.value.retry_after_s > 0
    with pytest.raises(ConnectionFailedError, match="refused") as second:
        pool.get(address)
    assert second.value.retry_after_s == pytest.approx(first.value.retry_after_s)
    clock.now += 10
    with pytest.raises(ConnectionFailedError) as third:
        pool.get(address)
    assert third.value.retry_after_s >= first.value.retry_after_s  # it was tried, and failed once more


def test_a_server_that_accepts_but_never_answers_is_not_tried_in_a_hurry(pool: ConnectionPool) -> None:
    def hang_up(peer: Peer, _frame: object) -> None:
        end(peer.connected)

    with serving(hang_up) as server:
        connection = pool.get(server.address)
        with pytest.raises(Exception, match="closed by the server"):
            connection.call(1, timeout_s=10)
        with pytest.raises(ConnectionFailedError):
            pool.get(server.address)


def test_addresses_can_be_mapped() -> None:
    with serving(echo) as server, closing(ConnectionPool(address_map={"10.255.255.1:10911": server.address})) as pool:
        connection = pool.get("10.255.255.1:10911")
        assert connection.call(1, timeout_s=10).code == 0
        assert connection.address == "10.255.255.1:10911"


def test_requests_of_servers_go_to_all_listeners_and_unknown_ones_are_declined(pool: ConnectionPool) -> None:
    told: list[tuple[str, int]] = []
    pool.on_request(lambda _connection, frame: told.append(("first", frame.code)))
    pool.on_request(lambda _connection, frame: told.append(("second", frame.code)))
    with serving(echo) as server:
        pool.get(server.address)
        server.peer().ask(307, {})
        (answer,) = server.peer().wait_for(1)
        assert (answer.code, answer.opaque) == (3, 99)
        assert told == [("first", 307), ("second", 307)]


def test_a_closed_pool_opens_nothing(pool: ConnectionPool) -> None:
    with serving(echo) as server:
        connection = pool.get(server.address)
        pool.close()
        assert not connection.is_open
        with pytest.raises(ClientClosedError):
            pool.get(server.address)


def test_a_forked_process_is_told_to_make_its_own(pool: ConnectionPool) -> None:
    with serving(echo) as server:
        pool.get(server.address)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                pool.get(server.address)
                os.write(write, b"no error")
            except ClientClosedError as error:
                os.write(write, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        with open(read, "rb") as stream:
            assert b"make one in each process" in stream.read()
