"""Writes the events of a soak to a topic, and remembers when each was sent."""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_right
from typing import Any

import confluent_kafka as ck

from tests.soak.model import QUEUES, event


class Feed:
    """A burst to each partition in turn. An idempotent producer repeats what a restarted broker did not answer, and doubles nothing."""

    def __init__(self, servers: str, topic: str, per_second: int, bursts_per_second: int = 20) -> None:
        self.sent = 0
        #: The first number of each burst, and when it was sent, seconds since the Unix epoch.
        self.firsts: list[int] = []
        self.times: list[float] = []
        self._topic = topic
        self._pause_seconds = 1 / bursts_per_second
        self._burst = max(1, per_second // bursts_per_second)
        self._producer: Any = ck.Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "delivery.timeout.ms": 900_000, "log_level": 0}
        )
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def sent_at(self, number: int) -> float | None:
        """Return when an event was sent, None if it has not been."""
        if number >= self.sent:
            return None
        return self.times[bisect_right(self.firsts, number) - 1]

    def stop(self) -> int:
        """Write what closes all windows; return how many events there are. Raises what went wrong."""
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        last = json.dumps({"k": "last", "n": 0, "ts": "2090-01-01T00:00:00Z", "v": 0}).encode()
        self._write([(partition, last) for partition in range(QUEUES)])
        return self.sent

    def _run(self) -> None:
        turn = 0
        try:
            while not self._stop.wait(self._pause_seconds):
                numbers = range(self.sent, self.sent + self._burst)
                now = time.time()
                self._write([(turn % QUEUES, json.dumps(event(number)).encode()) for number in numbers])
                self.firsts.append(self.sent)
                self.times.append(now)
                self.sent += self._burst
                turn += 1
        except BaseException as error:  # raised by stop
            self._failure = error

    def _write(self, records: list[tuple[int, bytes]]) -> None:
        failed: list[str] = []

        def answered(error: object, _: object) -> None:
            if error is not None:
                failed.append(str(error))

        for partition, body in records:
            self._producer.produce(self._topic, body, partition=partition, on_delivery=answered)
        self._producer.flush(900)
        if failed:
            raise RuntimeError(f"the feed could not write: {failed[0]}")
