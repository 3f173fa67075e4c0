"""One connection shared by many requests, against a real socket."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import pytest
from headrace_rocketmq import Credentials, RocketMQError
from headrace_rocketmq.connection import Connection, Reply, Request
from headrace_rocketmq.errors import ConnectionLostError, RequestTimeoutError
from headrace_rocketmq.frame import Frame
from headrace_rocketmq.transport import open_transport

from .wire_server import Peer, WireServer, echo, end, serving, silence


@dataclass
class Clock:
    """Time that a test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def connect(
    server: WireServer,
    *,
    clock: Clock | None = None,
    credentials: Credentials | None = None,
    on_request: Callable[[Connection, Frame], None] | None = None,
    on_lost: Callable[[Connection], None] | None = None,
) -> Connection:
    transport = open_transport(server.address, None, None, 5.0)
    return Connection(
        server.address,
        transport,
        clock=clock or Clock(),
        credentials=credentials,
        on_request=on_request,
        on_lost=on_lost,
    )


def test_many_threads_each_get_their_own_answer() -> None:
    with serving(echo) as server, closing(connect(server)) as connection, ThreadPoolExecutor(8) as threads:
        bodies = [b"%d" % number * (number % 500) for number in range(2000)]
        answers = threads.map(lambda body: connection.call(1, body=body, timeout_s=10).body, bodies)
        assert list(answers) == bodies


def test_answers_may_come_in_any_order() -> None:
    waiting: list[Frame] = []

    def backwards(peer: Peer, frame: Frame) -> None:
        waiting.append(frame)
        if len(waiting) == 3:
            for request in reversed(waiting):
                peer.answer(request, request.body)

    with serving(backwards) as server, closing(connect(server)) as connection:
        replies = [Reply() for _ in range(3)]
        connection.start([Request(1, {}, reply, b"%d" % number) for number, reply in enumerate(replies)])
        frames = [reply.wait(10) for reply in replies]
        assert [frame.body for frame in frames if frame] == [b"0", b"1", b"2"]


def test_large_frames_both_ways() -> None:
    body = bytes(range(256)) * 40_000
    with serving(echo) as server, closing(connect(server)) as connection:
        assert connection.call(1, body=body, timeout_s=20).body == body


def test_a_broken_connection_fails_all_that_wait_and_all_that_follows() -> None:
    lost: list[Connection] = []
    with serving(silence) as server, closing(connect(server, on_lost=lost.append)) as connection:
        replies = [Reply(), Reply()]
        connection.start([Request(1, {}, reply) for reply in replies])
        server.peer().wait_for(2)
        end(server.peer().connected)
        for reply in replies:
            with pytest.raises(ConnectionLostError, match="closed by the server"):
                reply.wait(10)
        assert not connection.is_open
        with pytest.raises(ConnectionLostError):
            connection.call(1, timeout_s=10)
        with pytest.raises(ConnectionLostError):
            connection.send_one_way(1, {})
    assert lost == [connection]


def test_closing_fails_what_waits() -> None:
    with serving(silence) as server:
        connection = connect(server)
        reply = Reply()
        connection.start([Request(1, {}, reply)])
        connection.close()
        with pytest.raises(ConnectionLostError, match="closed by this client"):
            reply.wait(10)
        connection.close()


def test_rubbish_from_the_server_ends_the_connection() -> None:
    def rubbish(peer: Peer, _frame: Frame) -> None:
        peer.connected.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with (
        serving(rubbish) as server,
        closing(connect(server)) as connection,
        pytest.raises(ConnectionLostError, match="RocketMQ"),
    ):
        connection.call(1, timeout_s=10)


def test_a_call_gives_up_after_its_timeout_and_forgets_the_answer() -> None:
    with serving(silence) as server, closing(connect(server)) as connection:
        with pytest.raises(RequestTimeoutError, match="pull message"):
            connection.call(11, timeout_s=0.01)
        (request,) = server.peer().wait_for(1)
        server.peer().answer(request)  # too late: nobody must be confused
        reply = Reply()
        connection.start([Request(1, {}, reply)])
        server.peer().answer(server.peer().wait_for(2)[1], b"in time")
        frame = reply.wait(10)
        assert frame is not None
        assert frame.body == b"in time"


def test_requests_expire_by_the_clock() -> None:
    clock = Clock()
    outcomes: list[Frame | RocketMQError] = []
    with serving(silence) as server, closing(connect(server, clock=clock)) as connection:
        connection.start(
            [Request(11, {}, outcomes.append, timeout_s=30), Request(11, {}, outcomes.append, timeout_s=50)]
        )
        clock.now += 29
        connection.expire()
        assert outcomes == []
        clock.now += 2
        connection.expire()
        assert [type(outcome) for outcome in outcomes] == [RequestTimeoutError]
        assert connection.is_open


def test_a_server_that_takes_nothing_is_given_up() -> None:
    clock = Clock()
    accepted, released = threading.Event(), threading.Event()

    def stuck(_peer: Peer, _frame: Frame) -> None:
        accepted.set()
        released.wait(20)  # does not read on

    with serving(stuck) as server, closing(connect(server, clock=clock)) as connection:
        reply = Reply()
        connection.start([Request(1, {}, Reply(), timeout_s=100)])
        assert accepted.wait(10)
        sender = threading.Thread(
            target=connection.start, args=([Request(1, {}, reply, bytes(50_000_000), timeout_s=100)],)
        )
        sender.start()
        while connection._sending_since is None:
            pass
        clock.now += 31
        connection.expire()
        with pytest.raises(ConnectionLostError, match="took nothing"):
            reply.wait(10)
        sender.join(10)
        assert not sender.is_alive()
        released.set()


def test_the_servers_requests_are_told_and_can_be_answered() -> None:
    told: list[Frame] = []
    arrived = threading.Event()

    def on_request(connection: Connection, frame: Frame) -> None:
        told.append(frame)
        connection.answer(frame, 3, "not supported")
        arrived.set()

    with serving(silence) as server, closing(connect(server, on_request=on_request)):
        server.peer().ask(40, {"consumerGroup": "g"})
        assert arrived.wait(10)
        assert (told[0].code, told[0].fields) == (40, {"consumerGroup": "g"})
        (answer,) = server.peer().wait_for(1)
        assert (answer.is_response, answer.opaque, answer.code, answer.remark) == (True, 99, 3, "not supported")


def test_one_way_requests_of_the_server_are_not_answered() -> None:
    arrived = threading.Event()

    def on_request(connection: Connection, frame: Frame) -> None:
        connection.answer(frame, 3, "not supported")
        arrived.set()

    with serving(echo) as server, closing(connect(server, on_request=on_request)) as connection:
        connection.call(1, timeout_s=10)
        server.peer().ask(40, {}, flag=2)
        assert arrived.wait(10)
        connection.call(2, timeout_s=10)
        assert [frame.code for frame in server.peer().wait_for(2)] == [1, 2]


def test_a_callback_that_fails_does_not_leave_others_waiting(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_outcome: Frame | RocketMQError) -> None:
        raise RuntimeError("a mistake")

    with serving(echo) as server, closing(connect(server)) as connection:
        reply = Reply()
        connection.start([Request(1, {}, fail), Request(1, {}, reply)])
        with pytest.raises(ConnectionLostError, match="a mistake"):
            reply.wait(10)
    assert "a mistake" in caplog.text


def test_requests_are_signed() -> None:
    with serving(echo) as server, closing(connect(server, credentials=Credentials("me", "secret"))) as connection:
        connection.call(1, {"topic": "t"}, b"body", timeout_s=10)
        (frame,) = server.peer().wait_for(1)
        assert frame.fields == Credentials("me", "secret").sign({"topic": "t"}, b"body")


def test_a_server_that_goes_away_is_left() -> None:
    def go_away(peer: Peer, frame: Frame) -> None:
        peer.answer(frame, code=1500)

    with serving(go_away) as server, closing(connect(server)) as connection:
        assert connection.call(1, timeout_s=10).code == 1500
        with pytest.raises(ConnectionLostError, match="going away"):
            connection.call(1, timeout_s=10)
