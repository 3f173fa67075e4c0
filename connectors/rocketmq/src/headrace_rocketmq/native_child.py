"""The process in which librocketmq lives, with rocketmq-client-python around it; started by native_consumer.

    python -m headrace_rocketmq.native_child MESSAGES_FD

It is a separate process because the library does not end cleanly: without a shutdown the process hangs or crashes when it
exits, and a shutdown waits for callbacks. This process is simply killed. The brokers give unacknowledged messages again.

Standard input brings a line of JSON (see Start in native_consumer), then eight bytes whenever messages are done: how many
are. Its end is the end of the process. MESSAGES_FD takes frames: a kind, a length and as many bytes.
"""

from __future__ import annotations

import ctypes.util
import json
import os
import signal
import struct
import sys
import threading
from typing import Any, BinaryIO

FRAME = struct.Struct(">cI")
"""What each frame begins with: its kind, and how many bytes follow."""
MESSAGE = struct.Struct(">qqIIII")
"""What a frame of a message begins with: milliseconds when it was stored and born, lengths of sharding key, message keys,
tags, and unique id; these follow, and then the body."""
STARTED, RECEIVED, FAILED = b"S", b"M", b"E"
DONE = struct.Struct(">Q")


class Gate:
    """Passes messages on, and holds the thread of each until it is done. The thread's return value is the acknowledgement to the broker."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._lock = threading.Lock()  # guards _given and the output
        self._given = 0
        self._changed = threading.Condition()
        self._done = 0

    def send(self, kind: bytes, payload: bytes) -> None:
        """Send a frame. Raises OSError when the reader has ended."""
        with self._lock:
            self._write(kind, payload)

    def pass_on(self, payload: bytes) -> None:
        """Send a message and wait until it is done, without a time limit."""
        with self._lock:
            number = self._given
            self._given += 1
            self._write(RECEIVED, payload)
        with self._changed:
            self._changed.wait_for(lambda: self._done > number)

    def finish(self, done: int) -> None:
        """Release the threads of the first so many messages."""
        with self._changed:
            self._done = done
            self._changed.notify_all()

    def _write(self, kind: bytes, payload: bytes) -> None:
        self._output.write(FRAME.pack(kind, len(payload)) + payload)
        self._output.flush()


def encode(message: Any) -> bytes:
    """Return the payload of a frame for a message as the library gives it."""
    parts = [
        message.get_property("__SHARDINGKEY") or b"",
        message.keys or b"",
        message.tags or b"",
        message.get_property("UNIQ_KEY") or b"",
    ]
    lengths = map(len, parts)
    return (
        MESSAGE.pack(message.store_timestamp, message.born_timestamp, *lengths)
        + b"".join(parts)
        + (message.body or b"")
    )


def end_with(gate: Gate, error: BaseException) -> None:
    """Report an error and end the process. No further message is acknowledged."""
    try:
        gate.send(FAILED, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(1)


def start(given: dict[str, Any], gate: Gate) -> Any:
    """Return a consumer that has been started; its threads call back from now on."""
    if given["library"] is not None:
        # rocketmq-client-python finds the library with this function, which needs a compiler or a linker.
        found = os.path.join(given["library"], "librocketmq.dylib" if sys.platform == "darwin" else "librocketmq.so")
        ctypes.util.find_library = lambda name: found
    from rocketmq.client import ConsumeStatus, PushConsumer

    def receive(message: Any) -> Any:
        try:
            gate.pass_on(encode(message))
        except BaseException as error:  # the library would treat it as success
            end_with(gate, error)
        return ConsumeStatus.CONSUME_SUCCESS

    consumer = PushConsumer(given["group"])
    consumer.set_name_server_address(given["name_servers"])
    consumer.set_instance_name(given["instance"])
    consumer.set_thread_count(given["threads"])
    consumer.set_message_batch_max_size(1)
    if given["access_key"] is not None:
        consumer.set_session_credentials(given["access_key"], given["secret_key"], "")
    for topic in given["topics"]:
        consumer.subscribe(topic, receive, given["tags"])
    consumer.start()
    return consumer


def main() -> None:
    """Run until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also comes here: it is for the other process to act on
    gate = Gate(os.fdopen(int(sys.argv[1]), "wb"))
    commands = sys.stdin.buffer
    line = commands.readline()
    if not line:
        os._exit(0)
    try:
        consumer = start(json.loads(line), gate)
        gate.send(STARTED, b"")
    except BaseException as error:
        end_with(gate, error)
    while len(done := commands.read(DONE.size)) == DONE.size:
        gate.finish(DONE.unpack(done)[0])
    assert consumer is not None  # kept until here: the library calls back into it
    os._exit(0)


if __name__ == "__main__":
    main()
