"""Subscriptions with a real broker: sessions, kills, back-pressure, retained messages, logins."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import HeadraceError, JobError
from headrace_mqtt import MqttSource
from mqtt_world import Sender, Taking, closing_all, login, make_source

from tests.eventually import eventually
from tests.servers.fixtures import StartMosquittoServer
from tests.servers.mosquitto import MosquittoServer

pytestmark = pytest.mark.servers
Take = Callable[[Any], Any]


@pytest.fixture
def take() -> Iterator[Take]:
    with closing_all() as found:
        yield found


def listen(take: Take, server: MosquittoServer, directory: Path, topic: str, **options: Any) -> Taking:
    """Return a source that has subscribed to the topic and to another one below it."""
    taking: Taking = take(Taking(make_source(server, directory, f"{topic},{topic}/ready", **options)))
    sender = Sender(server)
    sender.wait_for_subscriber(f"{topic}/ready")
    sender.close()
    return taking


def bodies(taking: Taking) -> list[bytes]:
    """Return the messages but the empty ones by which tests find out that it listens."""
    return [body for body in taking.stored() if body]


def test_messages_with_their_headers(take: Take, mosquitto_server: MosquittoServer, tmp_path: Path, topic: str) -> None:
    taking = listen(take, mosquitto_server, tmp_path, topic)
    sender = take(Sender(mosquitto_server))
    sender.send(topic, [b"1", b"\xff\x00"])
    eventually(lambda: bodies(taking) == [b"1", b"\xff\x00"], "they are stored")
    assert taking.headers()[-1] == {"topic": topic.encode(), "qos": b"1"}


def test_the_broker_keeps_messages_while_nobody_listens(
    take: Take, mosquitto_server: MosquittoServer, tmp_path: Path, topic: str
) -> None:
    listen(take, mosquitto_server, tmp_path, topic).close()
    sender = take(Sender(mosquitto_server))
    sender.send(topic, [b"%d" % number for number in range(100)])
    taking = take(Taking(make_source(mosquitto_server, tmp_path, f"{topic},{topic}/ready")))
    eventually(lambda: bodies(taking) == [b"%d" % number for number in range(100)], "they come")


def test_a_full_buffer_stops_the_broker_and_loses_nothing(
    take: Take, mosquitto_server: MosquittoServer, tmp_path: Path, topic: str
) -> None:
    taking = listen(take, mosquitto_server, tmp_path, topic, buffer_max_bytes="64 KiB", receive_maximum=10)
    payloads = [b"%04d" % number + b"x" * 1_000 for number in range(300)]
    sender = take(Sender(mosquitto_server))
    sender.send(topic, payloads)
    listener: Any = taking.source._shared.listener  # type: ignore[union-attr]
    eventually(lambda: len(listener._waiting) >= 9, "messages wait")
    assert len(listener._waiting) <= 10, "the broker sends no more than it may"
    found: list[bytes] = []
    while len(found) < len(payloads):
        raw = eventually(lambda: taking.reader.poll(1_000, timedelta(seconds=1)), "records come")
        assert raw is not None
        found += [body for body in raw.bodies or () if body]
        taking.log.trim(taking.reader.position.offset)
    assert found == payloads


def test_messages_come_after_the_broker_was_started_again(
    take: Take, start_mosquitto_server: StartMosquittoServer, tmp_path: Path, topic: str
) -> None:
    server = start_mosquitto_server()
    taking = listen(take, server, tmp_path, topic)
    for number in range(2):
        sender = Sender(server)
        sender.send(topic, [b"%d" % number])
        sender.close()
        eventually(lambda: b"%d" % number in bodies(taking), "it comes")  # noqa: B023
        server.stop()
        server.start()
    sender = take(Sender(server))
    sender.send(topic, [b"last"])
    eventually(lambda: b"last" in bodies(taking), "messages come again")
    assert bodies(taking) == [b"0", b"1", b"last"]


@pytest.mark.parametrize(("retained", "count"), [("new", 1), ("always", 2), ("never", 0)])
def test_retained_messages(
    take: Take, mosquitto_server: MosquittoServer, tmp_path: Path, topic: str, retained: str, count: int
) -> None:
    sender = take(Sender(mosquitto_server, retain=True))
    sender.send(topic, [b"kept"])
    plain = take(Sender(mosquitto_server))
    for number in range(2):
        taking = listen(take, mosquitto_server, tmp_path, topic, retained=retained)
        plain.send(topic, [b"%d" % number])  # behind what was retained
        eventually(lambda: b"%d" % number in bodies(taking), "it comes")  # noqa: B023
        if number == 1:
            assert bodies(taking).count(b"kept") == count
            kept = [headers for headers in taking.headers() if headers.get("retain") == b"1"]
            assert len(kept) == count
        taking.close()


def failure_of(take: Take, source: MqttSource) -> HeadraceError:
    def probe() -> HeadraceError | None:
        try:
            reader.poll(1, timedelta(milliseconds=10))
        except HeadraceError as error:
            return error
        return None

    reader = take(source).open(hr.Queue("buffer"), hr.EARLIEST)
    found = eventually(probe, "it fails")
    assert found is not None
    return found


def test_refusals_stop_the_job(take: Take, mosquitto_server: MosquittoServer, tmp_path: Path, topic: str) -> None:
    wrong = failure_of(take, make_source(mosquitto_server, tmp_path / "1", topic, password="s3cret"))
    assert "check user and password" in str(wrong)
    assert "s3cret" not in str(wrong)


def test_a_message_that_never_fits_stops_the_job(
    take: Take, mosquitto_server: MosquittoServer, tmp_path: Path, topic: str
) -> None:
    taking = listen(take, mosquitto_server, tmp_path, topic, buffer_max_bytes="64 KiB")
    take(Sender(mosquitto_server)).send(topic, [b"x" * 20_000])

    def failed() -> bool:
        try:
            taking.reader.poll(1, timedelta(milliseconds=10))
        except JobError as error:
            return "option 'buffer_max_bytes'" in str(error)
        return False

    eventually(failed, "it is told")


# The client library leaves a socket open whose certificate was refused.
@pytest.mark.filterwarnings("ignore:unclosed", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_tls(take: Take, mosquitto_server: MosquittoServer, tmp_path: Path, topic: str) -> None:
    files = mosquitto_server.certificates
    assert files is not None
    secured = {"host": "localhost", "port": mosquitto_server.tls_port}
    taking = listen(take, mosquitto_server, tmp_path / "1", topic, **secured, ssl_ca=str(files.authority))
    take(Sender(mosquitto_server, **secured, ssl_ca=str(files.authority))).send(topic, [b"1"])
    eventually(lambda: bodies(taking) == [b"1"], "it comes")
    source = make_source(mosquitto_server, tmp_path / "2", topic, **secured, ssl_ca=str(files.stranger_authority))
    with pytest.raises(JobError, match="option 'ssl_ca'"):
        take(source).open(hr.Queue("buffer"), hr.EARLIEST)
    gc.collect()


JOB = """
import json, sys
import headrace as hr
place = json.load(sys.stdin)
job = (hr.stream("tests", "killed").from_mqtt(place.pop("topic"), **place, buffer="buffer", format="json", schema={"n": "int64"})
       .to_file("out", format="json"))
if sys.argv[1] == "start":
    job.start("light", checkpoint="state", checkpoint_interval="50 ms").wait()
else:
    job.run("light", checkpoint="state", show_progress=False)
"""


def start_job(directory: Path, server: MosquittoServer, topic: str, what: str) -> subprocess.Popen[bytes]:
    job = subprocess.Popen([sys.executable, "-c", JOB, what], cwd=directory, stdin=subprocess.PIPE)
    assert job.stdin is not None
    job.stdin.write(json.dumps({"topic": topic, "client_id": topic, **login(server)}).encode())
    job.stdin.close()
    return job


def test_every_message_is_there_though_the_job_is_killed(
    mosquitto_server: MosquittoServer, tmp_path: Path, topic: str
) -> None:
    """Numbers are published all the time; the job is killed five times. Only what was on its way at a kill may be there twice."""
    sent: list[int] = []
    ended = threading.Event()
    sender = Sender(mosquitto_server)

    def send() -> None:
        while not ended.wait(0.001):
            sender.send(topic, [b'{"n": %d}' % len(sent)])
            sent.append(len(sent))

    def rows() -> list[int]:
        lines = [line for part in (tmp_path / "out").glob("*.json") for line in part.read_bytes().splitlines()]
        return [json.loads(line)["n"] for line in lines]

    job = start_job(tmp_path, mosquitto_server, topic, "start")
    thread = threading.Thread(target=send, daemon=True)
    try:
        eventually(lambda: sender.send(topic, [b'{"n": -1}'])[0] == 0, "the job has subscribed")
        thread.start()
        for _ in range(5):
            seen = len(rows())
            eventually(lambda: len(rows()) > seen + 50, "rows come")  # noqa: B023
            job.send_signal(signal.SIGKILL)
            job.wait()
            job = start_job(tmp_path, mosquitto_server, topic, "start")
        ended.set()
        thread.join()
        eventually(lambda: set(rows()) >= set(sent), "all rows come")
    finally:
        ended.set()
        job.kill()
        job.wait()
        sender.close()
    assert start_job(tmp_path, mosquitto_server, topic, "end").wait() == 0
    found = rows()
    assert set(found) - {-1} == set(sent)
    assert len(found) - len(set(found)) < 5 * 1_000 + 1_000  # receive_maximum at each kill, and the first ones
