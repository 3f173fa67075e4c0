"""Answers of a server, limited in size and time.

A server could send without end, or send data that becomes very large when it is decompressed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import urllib3

#: More than any page of documents that a job asks for. Compressed answers count with their decompressed size.
ANSWER_BYTES_MAX = 512 * 1024**2
#: A slow answer is given up after this many times the time-out of one read.
_TIMEOUTS_MAX = 10
_PIECE_BYTES = 1024**2

Open = Callable[..., urllib3.BaseHTTPResponse]


def bounded(urlopen: Open, timeout_seconds: float) -> Open:
    """Return ``urlopen`` of a pool so that it gives whole answers within bounds. Raises ``urllib3.exceptions.HTTPError`` otherwise."""

    def opened(method: str, target: str, **options: Any) -> urllib3.BaseHTTPResponse:
        response: Any = urlopen(method, target, preload_content=False, **options)
        until = time.monotonic() + _TIMEOUTS_MAX * timeout_seconds
        pieces: list[bytes] = []
        size = 0
        try:
            while piece := response.read1(_PIECE_BYTES):  # one read of the socket: each has a time-out
                pieces.append(piece)
                size += len(piece)
                if size > ANSWER_BYTES_MAX:
                    raise urllib3.exceptions.HTTPError(f"the answer is longer than {ANSWER_BYTES_MAX:,} bytes")
                if time.monotonic() > until:
                    raise urllib3.exceptions.HTTPError(
                        f"the answer has not ended after {_TIMEOUTS_MAX * timeout_seconds:g} s"
                    )
        except BaseException:
            response.close()  # later bytes belong to no other request
            raise
        response.release_conn()
        response._body = b"".join(pieces)  # the value of ``data``
        return response  # type: ignore[no-any-return]

    return opened
