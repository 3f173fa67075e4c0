"""Brokers that are not what they seem: no handshake gives the password away, and no answer takes unbounded time or memory."""

from __future__ import annotations

import base64
import importlib.util
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace.foundation.errors import HeadraceError, OptionError
from headrace_kafka.settings import KafkaSourceSettings
from headrace_kafka.source import KafkaSource
from hostile_broker import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    HostileBroker,
    scram_that_takes_for_ever,
    scram_with_wrong_signature,
)

PASSWORD = "s3same-0pen-wide"
DRIVERS = [
    pytest.param(
        "confluent",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("confluent_kafka") is None, reason="confluent-kafka is not here"
        ),
    ),
    "kafka-python",
]
METADATA = 3


def source(address: str, driver: str, **options: object) -> KafkaSource:
    given = {
        "topic": "t", "servers": address, "driver": driver, "security_protocol": "SASL_PLAINTEXT", "username": "reader",
        "password": PASSWORD, "connect_timeout": "3 s", **options,
    }  # fmt: skip
    return KafkaSource(KafkaSourceSettings.of(given))


def refused(broker: HostileBroker, driver: str, **options: object) -> HeadraceError:
    """Return the error of asking such a broker for its queues; nothing of the password may have left, nor be in the error."""
    made = source(broker.address, driver, **options)
    with pytest.raises(HeadraceError) as caught:
        made.queues()
    made.close()
    assert broker.asked, "the client has connected"
    for form in (PASSWORD.encode(), base64.b64encode(PASSWORD.encode()), PASSWORD.encode().hex().encode()):
        assert form not in broker.received
    assert PASSWORD not in str(caught.value)
    return caught.value


@pytest.fixture
def brokers() -> Iterator[list[HostileBroker]]:
    made: list[HostileBroker] = []
    yield made
    for broker in made:
        broker.close()


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_broker_that_offers_only_plain_gets_nothing(
    driver: str, mechanism: str, brokers: list[HostileBroker]
) -> None:
    """A downgrade: whoever stands in between says that the broker knows no better mechanism."""
    taken: list[bytes] = []
    brokers.append(HostileBroker(["PLAIN"], lambda token, before: taken.append(token) or b""))  # type: ignore[func-returns-value]
    refused(brokers[0], driver, sasl_mechanism=mechanism)
    assert taken == []
    assert SASL_AUTHENTICATE not in brokers[0].asked


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_broker_that_does_not_know_the_password_is_not_talked_to(driver: str, brokers: list[HostileBroker]) -> None:
    """SCRAM proves both sides: a wrong signature of the server ends the connection."""
    brokers.append(HostileBroker(["SCRAM-SHA-512"], scram_with_wrong_signature))
    refused(brokers[0], driver, sasl_mechanism="SCRAM-SHA-512")
    asked = brokers[0].asked
    assert asked.count(SASL_AUTHENTICATE) >= 2, "the client has given its proof"
    assert METADATA not in asked[asked.index(SASL_HANDSHAKE) :]


@pytest.mark.parametrize("driver", DRIVERS)
def test_rounds_of_hashing_have_a_bound(driver: str, brokers: list[HostileBroker]) -> None:
    """The server says how often the password is hashed: two billion times would take an hour."""
    brokers.append(HostileBroker(["SCRAM-SHA-512"], scram_that_takes_for_ever))
    refused(brokers[0], driver, sasl_mechanism="SCRAM-SHA-512")


def trickle(connected: socket.socket) -> None:
    connected.sendall(struct.pack(">i", 100_000))
    while True:
        threading.Event().wait(0.05)
        connected.sendall(b"x")


@pytest.mark.parametrize("asked", [[API_VERSIONS], [API_VERSIONS, SASL_HANDSHAKE]], ids=["first", "login"])
@pytest.mark.parametrize("answer", ["huge", "negative", "endless", "cut", "trickle"])
def test_answers_before_and_in_a_login_have_bounds(answer: str, asked: list[int], brokers: list[HostileBroker]) -> None:
    brokers.append(HostileBroker(raw=globals()[answer], raw_from=len(asked) - 1))
    refused(brokers[0], "kafka-python", sasl_mechanism="SCRAM-SHA-512", connect_timeout="1 s")
    assert brokers[0].asked == asked


def test_plain_goes_to_no_other_host_without_tls() -> None:
    with pytest.raises(OptionError, match="sends the password unencrypted"):
        source("broker.example:9092", "kafka-python", sasl_mechanism="PLAIN").check()


def huge(connected: socket.socket) -> None:
    connected.sendall(struct.pack(">i", 0x7FFFFFF0) + bytes(1024))
    connected.recv(1)


def negative(connected: socket.socket) -> None:
    connected.sendall(struct.pack(">i", -5) + bytes(64))
    connected.recv(1)


def endless(connected: socket.socket) -> None:
    while True:
        connected.sendall(bytes(65536))


def cut(connected: socket.socket) -> None:
    connected.sendall(struct.pack(">i", 100) + bytes(10))


def silent(connected: socket.socket) -> None:
    connected.recv(1)


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("answer", ["huge", "negative", "endless", "cut", "silent"])
def test_an_answer_that_is_none_is_given_up_in_bounded_memory(driver: str, answer: str) -> None:
    """In a process of its own, which may take so much memory and no more."""
    code = f"test_hostile_brokers.ask_in_little_memory({driver!r}, {answer!r})"
    ran = subprocess.run(
        [sys.executable, "-c", f"import test_hostile_brokers; {code}"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.stdout.strip().startswith("refused"), ran.stdout + ran.stderr


# Called in a process of its own.


def ask_in_little_memory(driver: str, answer: str) -> None:
    import resource
    import threading

    broker = HostileBroker(raw=globals()[answer])
    made = source(broker.address, driver, security_protocol="PLAINTEXT", username=None, password=None)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        made.queues()
    except HeadraceError as error:
        taken_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
        assert broker.asked
        # What kafka-python keeps of an endless answer depends on who is faster: it must not be asked at all.
        assert driver != "kafka-python" or broker.asked == [API_VERSIONS]
        assert taken_mib < 512, f"{taken_mib} MiB"
        print(f"refused {type(error).__name__} after {taken_mib} MiB, {threading.active_count()} threads", flush=True)
    os._exit(0)
