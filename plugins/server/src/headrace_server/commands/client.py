"""Asks a server, for the commands."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec
from headrace.foundation.errors import JobError, RetriableError

from headrace_server.access.client_tls import client_tls_context
from headrace_server.commands.places import DATA_VARIABLE, data_directory

URL_VARIABLE, TOKEN_VARIABLE = "HEADRACE_SERVER", "HEADRACE_TOKEN"
_TIMEOUT_SECONDS = 130.0


def is_known() -> bool:
    """Return whether the environment names a server, or one on this machine has said where it is."""
    return bool(os.environ.get(URL_VARIABLE)) or (data_directory() / "server.json").exists()


class Client:
    """A connection to a server. Errors of the server are raised as JobError, with its hint."""

    def __init__(self, url: str, token: str, *, transport: httpx.BaseTransport | None = None) -> None:
        self._url = url
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=_TIMEOUT_SECONDS,
            trust_env=False,  # a proxy must not see the token of a server on this machine
            verify=client_tls_context() if url.startswith("https:") else True,
            transport=transport,
        )

    @classmethod
    def of_environment(cls) -> Client:
        """Return a client of the server that the environment names, or of the one on this machine. Raises JobError if there is none."""
        url, token = os.environ.get(URL_VARIABLE), os.environ.get(TOKEN_VARIABLE)
        data = data_directory()
        if url is None:
            try:
                url = json.loads((data / "server.json").read_text(encoding="utf-8"))["url"]
            except (OSError, ValueError, KeyError):
                raise JobError(
                    f"no server runs with the data directory {data}",
                    hint=f"start one with headrace serve, or set {URL_VARIABLE} or {DATA_VARIABLE}",
                ) from None
        if token is None:
            try:
                token = (data / "token").read_text(encoding="ascii").strip()
            except OSError as error:
                raise JobError(
                    f"the token of the server cannot be read: {error}", hint=f"set {TOKEN_VARIABLE}"
                ) from error
        return cls(str(url), token)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. May be called twice."""
        self._http.close()

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """Send a request and return the decoded answer. Raises JobError if the request is refused, RetriableError if no server answers."""
        content = None if body is None else msgspec.json.encode(body)
        try:
            answer = self._http.request(method, path, content=content, params=query)
        except httpx.HTTPError as error:
            raise self._away(error) from error
        return _decoded(answer.status_code, answer.content)

    @contextmanager
    def events(self, path: str, **query: str) -> Iterator[Iterator[Any]]:
        """Give the values of events as they come, until the server or the caller ends them."""
        try:
            with self._http.stream("GET", path, params=query, timeout=httpx.Timeout(10.0, read=60.0)) as answer:
                if answer.status_code != 200:
                    _decoded(answer.status_code, answer.read())
                yield (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))
        except httpx.HTTPError as error:
            raise self._away(error) from error

    def _away(self, error: httpx.HTTPError) -> RetriableError:
        return RetriableError(
            f"the server at {self._url} does not answer: {error}",
            hint="check that it is running; headrace serve starts one",
        )


def _decoded(status: int, content: bytes) -> Any:
    try:
        found = msgspec.json.decode(content)
    except msgspec.DecodeError:
        raise JobError(f"the server answered {status} with something that is not JSON") from None
    if status >= 400:
        raise JobError(found.get("detail", f"the server answered {status}"), hint=found.get("hint"))
    return found


def path_of(job: str) -> str:
    """Return the path of a job in the API."""
    return f"/v1/jobs/{job.replace('/', ':')}"
