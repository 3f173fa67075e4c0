"""What the RocketMQ client sends and reads in a second, against a broker on this machine; the connector: rocketmq_connector.

    python -m benchmarks.rocketmq_client [--messages 100000] [--bytes 200] [--name-server HOST:PORT]

Without a name server it starts one with a broker, and removes it afterwards. Client and broker share the machine's
cores, so besides messages per second of wall time it gives the client's own CPU time for each message, which says what
one core could do. ``bare`` is the least that a program can do: one pull after the other, answers counted, not decoded.
"""

from __future__ import annotations

import argparse
import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial

from headrace_rocketmq import Client, Filter, Message, MessageQueue, ReaderOptions
from headrace_rocketmq.codes import RequestCode

from tests.servers.rocketmq import RocketMQServer
from tests.servers.sharing import own_server

_PATIENCE = timedelta(seconds=60)
_SINGLE_SENDS_MAX = 10_000


@contextmanager
def _server(name_server: str | None) -> Iterator[str]:
    if name_server is not None:
        yield name_server
    else:
        with own_server(RocketMQServer) as server:
            yield server.name_server


def _timed(name: str, count: int, action: Callable[[], None]) -> dict[str, object]:
    cpu, begun = time.process_time(), time.perf_counter()
    action()
    seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu
    figures = {
        "name": name,
        "messages": count,
        "per_second": round(count / seconds),
        "cpu_microseconds_per_message": round(cpu_seconds / count * 1e6, 2),
    }
    print(f"{name:48} {figures['per_second']:>9,}/s {figures['cpu_microseconds_per_message']:>8} µs CPU", flush=True)
    return figures


def _read(
    client: Client, queues: Sequence[MessageQueue], count: int, window: int, wanted: Filter | None = None
) -> None:
    with closing(
        client.reader(dict.fromkeys(queues, 0), message_filter=wanted, options=ReaderOptions(window=window))
    ) as reader:
        received = 0
        while received < count:
            batches = reader.poll(10_000, _PATIENCE)
            if not batches:
                raise RuntimeError(f"only {received} of {count} messages came")
            received += sum(map(len, batches))


def read_bare(client: Client, queue: MessageQueue, count: int) -> None:
    """Read messages of a queue by one pull after the other, in one thread."""
    connection = client._session.pool.get(client.brokers()[queue.broker_name])
    offset = 0
    while offset < count:
        fields = {
            "consumerGroup": "bare",
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            **Filter.everything().pull_fields(),
        }
        answer = connection.call(RequestCode.PULL_MESSAGE, fields, timeout_s=60)
        offset = int(answer.fields["nextBeginOffset"])


def run(client: Client, messages: int, body_bytes: int) -> list[dict[str, object]]:
    """All measurements; prints each as it is done."""
    topic = f"benchmark-{secrets.token_hex(4)}"
    queues = client.create_topic(topic, 4)
    each = messages // len(queues)
    body = b"x" * body_bytes
    singles = min(messages, _SINGLE_SENDS_MAX)
    batch = [Message(body, tag=f"t{number % 10}", keys=f"k{number}") for number in range(each)]
    single_queue = client.create_topic(f"{topic}-single", 1)[0]

    def send_many() -> None:
        for queue in queues:
            client.send_many(topic, batch, queue=queue)

    def send_async() -> None:
        futures = [client.send_async(single_queue.topic, message) for message in batch[:singles]]
        for future in futures:
            future.result(60)

    def send() -> None:
        for message in batch[: singles // 4]:
            client.send(single_queue.topic, message)

    results = [
        _timed("send_many, batches to 4 queues", each * 4, send_many),
        _timed("send_async, one by one", min(singles, each), send_async),
        _timed("send, waiting for each", min(singles // 4, each), send),
        _timed("bare pull loop, 1 queue", each, partial(read_bare, client, queues[0], each)),
    ]
    for count in (1, 4):
        for window in (1, 4, 16, 64):
            name = f"reader, {count} queue{'s' * (count > 1)}, window {window}"
            results.append(_timed(name, each * count, partial(_read, client, queues[:count], each * count, window)))
    matching = sum(number % 10 == 3 for number in range(each)) * 4
    by_tag = partial(_read, client, queues, matching, 16, Filter.by_tags("t3"))
    results.append(_timed("reader, 4 queues, 1 of 10 by tag (of matching)", matching, by_tag))
    for name in (topic, single_queue.topic):
        client.delete_topic(name)
    return results


def main() -> None:
    """Start what is needed, measure, print a table and the figures as JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=200)
    parser.add_argument("--name-server", metavar="HOST:PORT")
    arguments = parser.parse_args()
    with _server(arguments.name_server) as name_server, Client(name_server, timeout=_PATIENCE) as client:
        print(json.dumps(run(client, arguments.messages, arguments.bytes)))


if __name__ == "__main__":
    main()
