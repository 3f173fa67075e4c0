"""``driver="native"``: rocketmq-client-python with a real librocketmq, at least once whatever ends."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import psutil
import pytest
from headrace.foundation.errors import JobError, JobFailedError, OptionError, RetriableError
from headrace.interfaces.sink import SinkSettings
from headrace.interfaces.source import EARLIEST, LATEST
from headrace.testing import MemorySink
from headrace_rocketmq import Client, Credentials, Message
from headrace_rocketmq.native_child import DONE, FRAME, RECEIVED, Gate, encode
from headrace_rocketmq.native_consumer import NativeMessage
from headrace_rocketmq.native_source import NativeRocketMQSource
from headrace_rocketmq.settings import RocketMQSourceSettings
from headrace_rocketmq.source import RocketMQSource

from tests.eventually import eventually
from tests.servers.rocketmq import RocketMQServer

from .instances import Instances, messages, numbers_in

SCHEMA = {"number": "int64", "text": "string"}
PATIENCE = timedelta(seconds=60)


@pytest.fixture
def options(rocketmq_server: RocketMQServer, consumer_group: str, rocketmq_native_library: Path) -> dict[str, Any]:
    """Options of a source that uses the native client."""
    return {
        "name_servers": rocketmq_server.name_server,
        "group": consumer_group,
        "driver": "native",
        "native_library": str(rocketmq_native_library),
    }


@pytest.fixture
def filled(client: Client, topic: str) -> str:
    """A topic with 1,000 messages in four queues."""
    client.create_topic(topic, 4)
    client.send_many(topic, messages(0, 1000))
    return topic


def job_of(topic: str, sink: Any, **options: Any) -> hr.Job:
    job: hr.Job = hr.stream("tests", "native").from_rocketmq(topic, format="json", schema=SCHEMA, **options).to(sink)
    return job


def numbers(sink: MemorySink) -> set[int]:
    return {row["number"] for row in list(sink.rows)}


# ------------------------------------------------------------------------------------------------------- jobs


def test_all_is_read_and_committed(client: Client, filled: str, options: dict[str, Any]) -> None:
    found = MemorySink()
    with job_of(filled, found, **options).start("light") as handle:
        eventually(lambda: numbers(found) == set(range(1000)), "all is read")
        queues, group = client.queues(filled), options["group"]
        # The library tells brokers every few seconds, and only what is checkpointed: long before the job's own turn (10 s).
        latest = client.latest_offsets(queues)
        eventually(lambda: client.committed_offsets(group, queues) == latest, "all is committed")
    assert handle.wait().dead_letters == 0
    assert len(found.rows) == 1000


def test_keys_headers_and_tags(client: Client, topic: str, options: dict[str, Any]) -> None:
    client.create_topic(topic, 1)
    client.send_many(
        topic,
        [
            Message(b'{"number": 1}', tag="red", keys=["k1"], properties={"__SHARDINGKEY": "shard"}),
            Message(b'{"number": 2}', tag="red", keys=["hr:job/q:1:0", "k3"]),
            Message(b'{"number": 3}', tag="blue"),
        ],
    )
    found = MemorySink()
    metadata = {"key": "key", "headers": "headers", "at": "time", "queue": "queue"}
    given = {**options, "tags": "red", "metadata": metadata}
    with job_of(topic, found, **given).start("light"):
        eventually(lambda: len(found.rows) >= 2, "both are read")
    rows = sorted(found.rows, key=lambda row: row["number"])
    assert [(row["number"], row["key"]) for row in rows] == [(1, b"shard"), (2, b"k3")]
    assert '"TAGS":"red"' in rows[0]["headers"]
    assert '"KEYS":"k1"' in rows[0]["headers"]
    assert rows[0]["at"].year > 2000
    assert rows[0]["queue"].startswith(f"{topic}/native/")


def test_bodies_end_at_their_first_nul(client: Client, topic: str, options: dict[str, Any]) -> None:
    client.create_topic(topic, 1)
    client.send_many(topic, [Message(b"whole"), Message(b"cut\0off")])
    found = MemorySink()
    raw = hr.stream("tests", "raw").from_rocketmq(topic, format="raw", **options).to(found)
    with raw.start("light"):
        eventually(lambda: len(found.rows) >= 2, "both are read")
    assert sorted(str(row) for row in found.rows) == ["{'line': 'cut'}", "{'line': 'whole'}"]


def test_what_a_failing_sink_did_not_take_comes_again(filled: str, options: dict[str, Any]) -> None:
    """An exception is never success for the brokers."""
    refusing = MemorySink(SinkSettings(retry_timeout=timedelta(milliseconds=200)))
    refusing.failures = [RetriableError("not stored")] * 100_000
    with job_of(filled, refusing, **options).start("light") as handle, pytest.raises(JobFailedError):
        handle.wait(PATIENCE)
    assert refusing.rows == []
    found = MemorySink()
    with job_of(filled, found, **options).start("light"):
        eventually(lambda: numbers(found) == set(range(1000)), "all comes again")


def test_when_its_process_dies_the_job_goes_on(client: Client, filled: str, options: dict[str, Any]) -> None:
    found = MemorySink()
    with job_of(filled, found, **options).start("light") as handle:
        eventually(lambda: len(found.rows) > 0, "it has begun")
        for child in psutil.Process().children():
            if "headrace_rocketmq.native_child" in child.cmdline():
                child.kill()
        client.send_many(filled, messages(1000, 500))
        eventually(lambda: numbers(found) == set(range(1500)), "all is read")
        assert handle.status().error is None


def test_killed_and_started_again(
    client: Client, filled: str, fresh_name: Callable[[str], str], options: dict[str, Any]
) -> None:
    target = fresh_name("out")
    client.create_topic(target, 4)
    instances = Instances(source=filled, target=target, **options)
    try:
        for round_number in range(3):
            process = instances.start()
            last = 1000 + 300 * (round_number + 1)
            client.send_many(filled, messages(last - 300, 300))
            eventually(lambda: len(numbers_in(client, target)) > last - 1000, "it copies")  # noqa: B023
            [child] = psutil.Process(process.pid).children()
            process.send_signal(signal.SIGKILL)
            assert psutil.wait_procs([child], timeout=30)[1] == [], "the native client outlives the job"
        instances.start()
        eventually(lambda: set(numbers_in(client, target)) == set(range(1900)), "all is copied")
    finally:
        instances.end()


def test_instances_share_the_queues(client: Client, filled: str, options: dict[str, Any]) -> None:
    first, second = MemorySink(), MemorySink()
    with job_of(filled, first, **options).start("light"):
        eventually(lambda: numbers(first) == set(range(1000)), "one reads all")
        with job_of(filled, second, **options).start("light"):
            sent = 1000

            def both_have_new() -> bool:
                nonlocal sent
                client.send_many(filled, messages(sent, 100))
                sent += 100
                return len(second.rows) > 100 and len(numbers(second) - numbers(first)) > 100

            eventually(both_have_new, "the second has some of the queues")
            eventually(lambda: numbers(first) | numbers(second) == set(range(sent)), "all is read")


def test_a_program_that_just_ends_is_not_held_up(filled: str, options: dict[str, Any]) -> None:
    program = textwrap.dedent(
        f"""
        import headrace as hr
        from headrace.testing import MemorySink

        sink = MemorySink()
        stream = hr.stream("tests", "ends").from_rocketmq({filled!r}, format="json", schema={SCHEMA!r}, **{options!r})
        handle = stream.to(sink).start("light")
        while not sink.rows:
            handle.status()
        print("read")
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr


def test_a_login(
    secure_rocketmq_server: RocketMQServer, topic: str, consumer_group: str, rocketmq_native_library: Path
) -> None:
    assert secure_rocketmq_server.security is not None
    user = secure_rocketmq_server.security.user
    login = {"name_servers": secure_rocketmq_server.name_server, "access_key": user.name, "secret_key": user.password}
    with Client(login["name_servers"], credentials=Credentials(user.name, user.password)) as client:
        client.create_topic(topic, 2)
        client.send_many(topic, messages(0, 100))
    found = MemorySink()
    native = {"driver": "native", "native_library": str(rocketmq_native_library), "group": consumer_group}
    with job_of(topic, found, **login, **native).start("light"):
        eventually(lambda: numbers(found) == set(range(100)), "all is read")


# ------------------------------------------------------------------------------------------------------- errors


def source_of(**options: Any) -> Any:
    given = {"topic": "t", "name_servers": "h:9876", "driver": "native", **options}
    return RocketMQSource(RocketMQSourceSettings.of(given, plugin="rocketmq"))


@pytest.mark.parametrize(
    "options",
    [
        {"offsets": {0: 1}},
        {"sql": "a > 1"},
        {"deduplicate": True},
        {"exclusive": True},
        {"tls": True},
        {"address_map": {"a:1": "b:1"}},
    ],
    ids=str,
)
def test_options_that_it_cannot_meet_are_refused(options: dict[str, Any]) -> None:
    [name] = options
    with pytest.raises(OptionError, match=rf"has no effect with driver='native' .*option '{name}'"):
        source_of(**options)


def test_its_options_need_it() -> None:
    with pytest.raises(OptionError, match=r"has no effect with driver='remoting' .*option 'native_library'"):
        source_of(driver="remoting", native_library="/lib")


def test_what_it_cannot_do_is_said_before_the_start() -> None:
    source = source_of()
    assert isinstance(source, NativeRocketMQSource)
    with pytest.raises(OptionError, match="pushed messages have no end"):
        source.use_run(until="end")
    source.start = LATEST
    with pytest.raises(OptionError, match=r"option 'start'"):
        source.check()


def test_a_library_that_is_not_there_is_named(client: Client, topic: str, options: dict[str, Any]) -> None:
    client.create_topic(topic, 1)
    source = source_of(**{**options, "topic": topic, "native_library": "/no/such/place"})
    [queue] = source.queues()
    with pytest.raises(JobError, match="only as a member of a consumer group"):
        source.open(queue, EARLIEST)
    with pytest.raises(OptionError, match=r"(?s)/no/such/place.*option 'driver'.*native_library="):
        source.join(None)
    source.close()


def test_an_unknown_topic_is_named(client: Client, topic: str, options: dict[str, Any]) -> None:
    source = source_of(**{**options, "topic": topic})
    with pytest.raises(JobError, match=f"there is no topic '{topic}'"):
        source.queues()


# ------------------------------------------------------------------------------------------- between the processes


class LibraryMessage:
    """A message as rocketmq-client-python gives it."""

    def __init__(self, body: bytes | None, keys: bytes | None = None) -> None:
        self.body, self.keys, self.tags = body, keys, b"t"
        self.store_timestamp, self.born_timestamp = 2, 1

    def get_property(self, name: str) -> bytes | None:
        return {"UNIQ_KEY": b"id"}.get(name)


@pytest.mark.parametrize(("body", "keys"), [(b"body", b"a b"), (None, None), (b"", b"\xff")])
def test_messages_pass_between_the_processes(body: bytes | None, keys: bytes | None) -> None:
    passed = NativeMessage.decode(encode(LibraryMessage(body, keys)))
    assert passed == NativeMessage(2, 1, b"", keys or b"", b"t", b"id", body or b"")


def test_a_thread_is_held_until_its_message_is_done() -> None:
    output = io.BytesIO()
    gate = Gate(output)
    threads = [threading.Thread(target=gate.pass_on, args=(b"%d" % number,), daemon=True) for number in range(3)]
    for number, thread in enumerate(threads):
        thread.start()
        eventually(lambda: len(output.getvalue()) == (number + 1) * (FRAME.size + 1), "it is passed on")  # noqa: B023
    assert output.getvalue() == b"".join(FRAME.pack(RECEIVED, 1) + b"%d" % number for number in range(3))
    gate.finish(DONE.unpack(DONE.pack(2))[0])
    for thread in threads[:2]:
        thread.join(30)
        assert not thread.is_alive()
    assert threads[2].is_alive()
    gate.finish(3)
    threads[2].join(30)
    assert not threads[2].is_alive()
