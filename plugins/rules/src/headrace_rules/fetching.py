"""Rules that a server has, in a file of this machine: for boxes that are not always connected."""

from __future__ import annotations

import http.client
import json
import logging
import os
import ssl
import threading
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

from headrace.foundation.addresses import is_loopback
from headrace.foundation.durable_files import replace_durably
from headrace.foundation.errors import HeadraceError, JobError, OptionError, RetriableError
from headrace.interfaces.settings import Secret, parse_duration

from headrace_rules.loading import load

logger = logging.getLogger(__name__)
_TEXT_MAX_BYTES = 32 * 1024**2
_REFUSALS = {
    401: "the token is not one of the server",
    403: "the token may not read this job",
    404: "the server has no such job, or is an older one",
}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The token is for this server alone."""

    def redirect_request(self, *given: Any, **named: Any) -> None:
        return None


class ServerRules:
    """Keeps a file of rules as those that were put last for a job of a server (``headrace rules put``).

    Made by the program of a box before its job, whose verb reads the file: ``stream.rules(file, reload_interval="10 s")``. ``start``
    fetches them once, and then every ``interval`` in a thread of this process. The file is replaced as a whole, and only by a text that
    holds rules. While the server is not available, and over restarts of the machine, the file stays: the job keeps its present rules.

    ``token``: of the server, or its place such as ``"${HEADRACE_TOKEN}"``; it is sent over https, or to this machine. ``ssl_ca``: file
    with the trusted certificates; default: those of the system. Raises OptionError for options that do not fit.
    """

    def __init__(
        self,
        server: str,
        job: str,
        file: str | os.PathLike[str],
        *,
        token: str | Secret,
        interval: str | float | timedelta = "1 min",
        ssl_ca: str | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise OptionError("expected an address such as https://headrace.example", plugin="rules", option="server")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise OptionError(
                "the token would be sent unencrypted", plugin="rules", option="server", hint="write https://"
            )
        self.file = Path(file)
        if self.file.suffix not in (".yaml", ".sql"):
            raise OptionError("its name must end in .yaml or .sql", plugin="rules", option="file")
        self.address = f"{server.rstrip('/')}/v1/jobs/{quote(job)}/rules/text"
        self._token = token if isinstance(token, Secret) else Secret(token)
        self._interval_seconds = parse_duration(interval).total_seconds()
        self._timeout_seconds = timeout_seconds
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects(), urllib.request.ProxyHandler({})]
        if parts.scheme == "https":
            handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ssl_ca)))
        self._opener = urllib.request.build_opener(*handlers)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def fetch(self) -> bool:
        """Fetch the rules once; return whether the file has changed.

        Raises RetriableError if the server does not answer, JobError if it refuses, or if it returns no rules. Then the file stays.
        """
        text = self._asked()
        try:
            if self.file.read_bytes() == text:
                return False
        except FileNotFoundError:
            self.file.parent.mkdir(parents=True, exist_ok=True)
        trial = self.file.with_name(f".{self.file.stem}.new{self.file.suffix}")
        try:
            trial.write_bytes(text)
            found = load(str(trial))
        finally:
            trial.unlink(missing_ok=True)
        for one in found.rejections:
            logger.warning("rules of %s: %s", self.address, one)
        if not found.rules:
            raise JobError(f"{self.address} returned no rules", plugin="rules", hint="the present rules stay in use")
        replace_durably(self.file, text)
        return True

    def start(self) -> ServerRules:
        """Fetch the rules now and repeatedly. Raises JobError or RetriableError if the first try fails and there is no file yet."""
        try:
            self.fetch()
        except HeadraceError as error:
            if not self.file.exists():
                raise
            logger.warning("the rules in %s stay: %s", self.file, error)
        self._thread = threading.Thread(target=self._follow, name=f"rules of {self.address}", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread. May be called twice."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> ServerRules:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _follow(self) -> None:
        told = ""
        while not self._ended.wait(self._interval_seconds):
            try:
                if self.fetch():
                    logger.info("new rules in %s", self.file)
                told = ""
            except (HeadraceError, OSError) as error:
                if str(error) != told:  # an outage is logged once
                    logger.warning("the rules in %s stay: %s", self.file, error)
                told = str(error)

    def _asked(self) -> bytes:
        request = urllib.request.Request(self.address, headers={"Authorization": f"Bearer {self._token.reveal()}"})
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as answer:
                body = answer.read(_TEXT_MAX_BYTES + 1)
        except urllib.error.HTTPError as error:
            if error.code in (408, 429) or error.code >= 500:
                raise RetriableError(f"{self.address} answered {error.code}", plugin="rules") from error
            raise JobError(
                f"{self.address} answered {error.code}", plugin="rules", hint=_REFUSALS.get(error.code)
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise RetriableError(f"{self.address} does not answer: {error}", plugin="rules") from error
        try:
            found: Any = json.loads(body) if len(body) <= _TEXT_MAX_BYTES else None
            text, suffix = found["text"].encode(), found["suffix"]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise JobError(f"{self.address} is not a server of headrace", plugin="rules") from error
        if suffix != self.file.suffix:
            raise JobError(
                f"the server's rules are in {suffix} format, but the file is {self.file.name}", plugin="rules"
            )
        return bytes(text)
