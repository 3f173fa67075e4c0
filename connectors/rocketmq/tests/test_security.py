"""Access control and TLS, against a broker that demands them."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from headrace_rocketmq import Client, Credentials, Message, MessageQueue, Tls
from headrace_rocketmq.errors import ConnectionFailedError, PermissionDeniedError, RocketMQError

from tests.servers.fixtures import StartRocketMQServer
from tests.servers.login import Login
from tests.servers.rocketmq import RocketMQOptions, RocketMQSecurity, RocketMQServer

from .reading import bodies, poll_messages

SHORT = timedelta(seconds=5)


def security(server: RocketMQServer) -> RocketMQSecurity:
    assert server.security is not None
    return server.security


def credentials(login: Login) -> Credentials:
    return Credentials(login.name, login.password)


def exercise(client: Client, topic: str, group: str) -> None:
    """Everything that is signed in its own way: fields only, a body only, both, one way."""
    queues = client.create_topic(topic, 2)
    client.send(topic, Message(b"one", tag="t", properties={"ü": "ö"}))
    client.send_many(topic, [Message(b"many", queue_key=str(number)) for number in range(50)])
    client.send_async(topic, Message(b"async")).result(30)
    client.send_one_way(topic, Message(b"one way"))
    with client.consumer(group, topic, exclusive=True) as consumer:
        assert len(bodies(poll_messages(consumer, 53))) == 53
        consumer.commit()
    assert None not in client.committed_offsets(group, queues).values()


def test_signed_requests(secure_rocketmq_server: RocketMQServer, topic: str, consumer_group: str) -> None:
    user = security(secure_rocketmq_server).user
    with Client(secure_rocketmq_server.name_server, credentials=credentials(user)) as client:
        exercise(client, topic, consumer_group)


def test_signed_requests_over_tls(secure_rocketmq_server: RocketMQServer, topic: str, consumer_group: str) -> None:
    user, certificates = security(secure_rocketmq_server).user, security(secure_rocketmq_server).certificates
    tls = Tls(ca_file=certificates.authority)
    with Client(secure_rocketmq_server.name_server, credentials=credentials(user), tls=tls) as client:
        exercise(client, topic, consumer_group)


def test_a_server_that_takes_nothing_but_tls(
    start_rocketmq_server: StartRocketMQServer, topic: str, consumer_group: str
) -> None:
    server = start_rocketmq_server(RocketMQOptions(secure=True, require_tls=True))
    user, certificates = security(server).user, security(server).certificates
    with Client(server.name_server, credentials=credentials(user), tls=Tls(ca_file=certificates.authority)) as client:
        exercise(client, topic, consumer_group)
    with (
        Client(server.name_server, credentials=credentials(user), timeout=SHORT) as plain,
        pytest.raises(RocketMQError, match=server.name_server),
    ):
        plain.queues(topic)


def test_a_server_whose_certificate_is_not_trusted(secure_rocketmq_server: RocketMQServer, topic: str) -> None:
    certificates = security(secure_rocketmq_server).certificates
    tls = Tls(ca_file=certificates.stranger_authority)
    with (
        Client(secure_rocketmq_server.name_server, tls=tls, timeout=SHORT) as client,
        pytest.raises(ConnectionFailedError, match="certificate verify failed"),
    ):
        client.queues(topic)


@pytest.mark.parametrize("who", ["nobody", "stranger", "wrong secret", "outsider"])
def test_who_has_no_right_is_told_so(
    secure_rocketmq_server: RocketMQServer, topic: str, consumer_group: str, who: str
) -> None:
    given = security(secure_rocketmq_server)
    with Client(secure_rocketmq_server.name_server, credentials=credentials(given.user)) as client:
        queues = client.create_topic(topic, 1)
        client.send(topic, Message(b"x"))
    chosen = {
        "nobody": None,
        "stranger": Credentials("stranger", "no such user"),
        "wrong secret": Credentials(given.user.name, "wrong"),
        "outsider": credentials(given.outsider),
    }[who]
    with Client(secure_rocketmq_server.name_server, credentials=chosen, timeout=SHORT) as client:
        with pytest.raises(PermissionDeniedError, match="send message"):
            client.send(topic, Message(b"x"))
        with pytest.raises(PermissionDeniedError):
            client.reader({queues[0]: 0}).poll(1, timedelta(seconds=10))
        with pytest.raises(PermissionDeniedError):
            client.create_topic(f"{topic}-2", 1)
        with pytest.raises(PermissionDeniedError):
            client.latest_offsets([MessageQueue(topic, "broker-0", 0)])
        with pytest.raises(PermissionDeniedError):
            client.consumer(consumer_group, topic)


def test_secrets_are_neither_shown_nor_logged(
    secure_rocketmq_server: RocketMQServer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    user = security(secure_rocketmq_server).user
    with Client(
        secure_rocketmq_server.name_server, credentials=Credentials(user.name, "hidden-secret", "hidden-token")
    ) as client:
        with pytest.raises(PermissionDeniedError) as caught:
            client.create_topic(topic, 1)
        shown = f"{client!r} {client._settings!r} {caught.value!r} {caught.value.__dict__} {caplog.text}"
    assert "hidden" not in shown
