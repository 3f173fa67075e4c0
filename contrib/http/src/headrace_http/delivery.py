"""Sends the rows of a batch in requests, and judges the answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from urllib.parse import quote

import numpy as np
from headrace.flow.messages import Position, position_of
from headrace.foundation.errors import HeadraceError, JobError, RetriableError
from headrace.interfaces.sink import SinkBatch
from headrace.interfaces.sink_progress import SinkProgress
from numpy.typing import NDArray

from headrace_http.bodies import RequestBodies, divided
from headrace_http.client import Answer, Client
from headrace_http.settings import RequestSinkSettings

_HINTS = {
    401: ("token", "check the token, the password or the key, and that it is sent as the server wants it"),
    403: ("token", "the server knows the login, but does not let it write"),
    404: ("url", "is the path right?"),
    405: ("method", "the server takes another method at this path"),
    407: ("url", "a proxy on the way wants a login"),
    410: ("url", "the server says that this path is gone for good"),
    415: ("content_type", "the server wants another form: body, content_type or compress"),
}


class Delivery:
    """Sends a part of a batch and records its progress. Made for one call of ``batch_insert``."""

    def __init__(
        self,
        settings: RequestSinkSettings,
        client: Client,
        maker: RequestBodies,
        judge: Callable[[Answer], None],
        batch: SinkBatch,
        progress: SinkProgress,
        place: slice,
    ) -> None:
        self._settings = settings
        self._client = client
        self._maker = maker
        self._judge = judge
        self._batch = batch
        self._progress = progress
        #: The index of the batch's first row among the rows of the progress.
        self._first = place.start
        self._objects = maker.objects(batch)

    def send(self, rows: NDArray[np.int64], executor: Executor | None) -> None:
        """Send these rows of the progress, and record the outcomes of the answers.

        Raises RetriableError or JobError. Without an executor it stops at the first error, so that no later row
        overtakes an earlier one.
        """
        parts = self._parts(rows - self._first)
        if executor is None:
            for part in parts:
                self._deliver(part)
            return
        sending = [executor.submit(self._deliver, part) for part in parts]
        errors = [error for future in sending if (error := future.exception()) is not None]
        if errors:
            # An error that a person must correct has priority over a retriable one.
            raise next((error for error in errors if not isinstance(error, RetriableError)), errors[0])

    def _parts(self, wanted: NDArray[np.int64]) -> Iterator[slice]:
        """Yield the requests that contain requested rows. They begin and end at the same rows as in the previous call."""
        limits = {"rows_max": self._settings.rows_per_request, "bytes_max": self._settings.request_bytes}
        for part in divided(self._objects, **limits):
            inside = wanted[np.searchsorted(wanted, part.start) : np.searchsorted(wanted, part.stop)]
            # Some rows of a part may be stored: the part was divided to find bad rows, and then the server stopped
            # answering.
            for run in np.split(inside, np.flatnonzero(np.diff(inside) > 1) + 1):
                if len(run):
                    yield slice(int(run[0]), int(run[-1]) + 1)

    def _deliver(self, part: slice) -> None:
        """Send one request. If the server refuses its rows, send them in halves. Raises RetriableError or JobError."""
        objects = self._objects[part]
        answer = self._client.send(self._maker.body(objects), self._headers(part))
        settings, status = self._settings, answer.status
        if 200 <= status < 300 or status in settings.stored_statuses:
            self._judge(answer)
            self._progress.store(np.arange(part.start, part.stop) + self._first)
        elif status in settings.retry_statuses:
            raise RetriableError(
                self._text(answer), after=answer.retry_after, plugin=settings.plugin_name, queue=self._batch.queue.id
            )
        elif status not in settings.dead_letter_statuses:
            raise self._refused(answer)
        elif len(objects) > 1:
            middle = (part.start + part.stop) // 2
            self._deliver(slice(part.start, middle))
            self._deliver(slice(middle, part.stop))
        else:
            self._progress.refuse(part.start + self._first, self._text(answer))

    def _headers(self, part: slice) -> dict[str, str]:
        """Return the headers by which the receiver knows which rows these are, and whether the request is a repeated
        one.
        """
        first, last = position_of(self._batch.frame, part.start), position_of(self._batch.frame, part.stop - 1)
        writer, queue = self._batch.writer, self._batch.queue.id
        return {
            **self._maker.headers,
            "idempotency-key": request_key(writer, queue, first, last),
            "headrace-writer": quote(writer, safe="/:="),
            "headrace-queue": quote(queue, safe="/:="),
            "headrace-first": f"{first.offset}.{first.index}",
            "headrace-last": f"{last.offset}.{last.index}",
        }

    def _text(self, answer: Answer) -> str:
        said = f": {answer.text}" if answer.text else ""
        return f"{self._client.where} answered with status {answer.status}{said}"

    def _refused(self, answer: Answer) -> HeadraceError:
        option, hint = _HINTS.get(
            answer.status, ("url", "mend what it says, or name the status in retry_statuses or dead_letter_statuses")
        )
        if 300 <= answer.status < 400:
            hint = "the server sends the client elsewhere: write that address, redirects are not followed"
        plugin, queue = self._settings.plugin_name, self._batch.queue.id
        return JobError(self._text(answer), plugin=plugin, option=option, queue=queue, hint=hint)


def request_key(writer: str, queue: str, first: Position, last: Position) -> str:
    """Return the key of a request: 32 hexadecimal digits, always the same for the same rows of a job."""
    place = f"{writer}\0{queue}\0{first.offset}.{first.index}\0{last.offset}.{last.index}"
    return hashlib.sha256(place.encode()).hexdigest()[:32]
