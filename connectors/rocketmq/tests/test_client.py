"""The client's settings, and what the package offers."""

from __future__ import annotations

import pickle
import threading
from datetime import datetime, timedelta
from pathlib import Path

import headrace_rocketmq
import pytest
from headrace_rocketmq import Client, Credentials, Message, MessageQueue, Tls
from headrace_rocketmq.errors import (
    BrokerBusyError,
    ClientClosedError,
    ConfigurationError,
    ConnectionFailedError,
    OffsetOutOfRangeError,
    RocketMQError,
    broker_error,
)

from .wire_server import serving, silence


def test_what_is_offered() -> None:
    assert sorted(headrace_rocketmq.__all__) == headrace_rocketmq.__all__
    for name in headrace_rocketmq.__all__:
        assert getattr(headrace_rocketmq, name).__doc__


def test_secrets_are_not_shown() -> None:
    with Client("127.0.0.1:1", credentials=Credentials("user", "hidden"), tls=Tls(key_password="hidden")) as client:
        assert repr(client) == "Client('127.0.0.1:1')"
        assert "hidden" not in repr(client._settings)


@pytest.mark.parametrize("option", ["timeout", "connect_timeout"])
def test_timeouts_must_be_positive(option: str) -> None:
    with pytest.raises(ConfigurationError, match=option):
        Client("127.0.0.1:1", **{option: timedelta(0)})  # type: ignore[arg-type]


def test_certificates_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="missing"):
        Client("127.0.0.1:1", tls=Tls(ca_file=tmp_path / "missing"))


def test_calls_end_in_time_when_nobody_answers() -> None:
    with (
        serving(silence) as server,
        Client(server.address, timeout=timedelta(seconds=0.2)) as client,
        pytest.raises(RocketMQError, match=server.address),
    ):
        client.queues("topic")


def test_closing_ends_calls_and_threads() -> None:
    before = set(threading.enumerate())
    with serving(silence) as server:
        client = Client(server.address, timeout=timedelta(seconds=60))
        failures: list[BaseException] = []

        def ask() -> None:
            try:
                client.queues("topic")
            except RocketMQError as error:
                failures.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        server.peer().wait_for(1)
        client.close()
        asking.join(10)
        assert isinstance(failures[0], ClientClosedError)
        with pytest.raises(ClientClosedError):
            client.queues("topic")
        client.close()
    assert set(threading.enumerate()) <= before


def test_the_second_name_server_is_asked_when_the_first_is_gone() -> None:
    with serving(silence) as gone:
        pass
    route = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:1"},"brokerName":"b"}],"queueDatas":[{"brokerName":"b","perm":6,'
    )
    route += b'"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2}]}'
    with (
        serving(lambda peer, frame: peer.answer(frame, route)) as server,
        Client(f"{gone.address};{server.address}") as client,
    ):
        assert client.queues("t") == [MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)]


def test_a_start_without_time_zone_is_refused() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(ConfigurationError, match="time zone"):
        client.consumer("group", "topic", start=datetime(2024, 1, 1))


@pytest.mark.parametrize(
    "error",
    [
        ConnectionFailedError("a:1", "refused", retry_after_s=2.0),
        OffsetOutOfRangeError("q", 1, earliest=2, latest=3, suggested=2, remark="TOO_SMALL"),
        broker_error(2, "busy", address="a:1", operation="pull"),
    ],
)
def test_errors_can_cross_processes(error: RocketMQError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__


def test_errors_say_whether_to_try_again() -> None:
    assert broker_error(2, None, address="a", operation="o").retriable
    assert isinstance(broker_error(2, None, address="a", operation="o"), BrokerBusyError)
    assert not broker_error(16, "no", address="a", operation="o").retriable
    assert "code 12345" in str(broker_error(12345, "odd\nsecond line", address="a", operation="o"))
    assert "no reason given" in str(broker_error(12345, " \n", address="a", operation="o"))


def test_a_message_is_made_of_its_body_first() -> None:
    assert Message(b"body").body == b"body"
