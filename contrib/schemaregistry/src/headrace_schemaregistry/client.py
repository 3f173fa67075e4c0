"""A client of schema registries with Confluent's protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import urllib3
from headrace.foundation.errors import HeadraceError, JobError, RetriableError
from headrace.interfaces.connection_options import client_tls_context

from headrace_schemaregistry.settings import RegistrySettings

_CONTENT = "application/vnd.schemaregistry.v1+json"
_ANSWER_BYTES_MAX = 16 * 1024 * 1024
_QUOTED_CHARACTERS = 300
#: Statuses after which the same request may succeed.
_RETRY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
#: Parts of the texts of TLS errors that are permanent, unlike a connection that is cut in the handshake.
_TLS_FAULTS = ("CERTIFICATE", "certificate", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "ALERT")
_REFERENCES_MAX = 200
#: How many requests may run at the same time.
CONNECTIONS_MAX = 8


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one refers to: the name in the reference (an imported file of Protocol Buffers, a
    ``$ref``), and its text.
    """

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry. ``kind``: AVRO, PROTOBUF or JSON. ``references`` are in an order in which each comes
    before those that refer to it.
    """

    text: str
    kind: str = "AVRO"
    references: tuple[Reference, ...] = ()


class SchemaRegistry:
    """Sends requests to a registry. It caches nothing. Usable by several threads; must not be pickled or forked.

    All methods raise RetriableError while the registry cannot be reached or is not ready, and JobError when it does not
    let this client in.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._format = settings.format_name
        self._url = settings.registry_url.rstrip("/")
        self._secrets: list[str] = []
        self._headers = {"user-agent": "headrace", "accept": f"{_CONTENT}, application/json", **self._login()}
        secured = urlsplit(settings.registry_url).scheme == "https"
        self._pool = urllib3.PoolManager(
            num_pools=1,
            maxsize=CONNECTIONS_MAX,
            retries=False,
            timeout=urllib3.Timeout(settings.registry_timeout.total_seconds()),
            ssl_context=client_tls_context(settings, plugin=self._format, prefix="registry_") if secured else None,
        )

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema of an id, or None when the registry does not know the id."""
        answer = self._ask("GET", f"/schemas/ids/{schema_id}", unknown=(404,))
        return None if answer is None else self._schema(answer)

    def latest(self, subject: str) -> tuple[int, RegisteredSchema] | None:
        """Return id and schema of the latest version of a subject, or None when there is none."""
        answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest", unknown=(404,))
        return None if answer is None else (self._id(answer), self._schema(answer))

    def registered(self, subject: str, text: str, kind: str = "AVRO") -> int | None:
        """Return the id of a schema that is a version of the subject, or None when it is not."""
        answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}", _sent(text, kind), unknown=(404,))
        return None if answer is None else self._id(answer)

    def register(self, subject: str, text: str, kind: str = "AVRO") -> int:
        """Register a schema as a version of the subject, if it is not one yet. Return its id. Raises JobError if the
        registry refuses it.
        """
        answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", _sent(text, kind))
        assert answer is not None
        return self._id(answer)

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def _schema(self, answer: Mapping[str, Any]) -> RegisteredSchema:
        references: dict[tuple[str, int], Reference] = {}
        self._collect(answer.get("references") or (), references)
        return RegisteredSchema(
            str(answer.get("schema", "")), str(answer.get("schemaType") or "AVRO"), tuple(references.values())
        )

    def _collect(self, given: Sequence[Any], found: dict[tuple[str, int], Reference]) -> None:
        for each in given:
            subject, version = str(each["subject"]), int(each["version"])
            if (subject, version) in found or len(found) >= _REFERENCES_MAX:
                continue
            answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}")
            assert answer is not None
            self._collect(answer.get("references") or (), found)
            found[subject, version] = Reference(str(each.get("name", subject)), str(answer["schema"]))

    def _id(self, answer: Mapping[str, Any]) -> int:
        found = answer.get("id")
        if not isinstance(found, int):
            raise self._failure(f"the answer has no id: {self._shown(str(answer))}")
        return found

    def _ask(
        self, method: str, path: str, sent: Mapping[str, Any] | None = None, *, unknown: tuple[int, ...] = ()
    ) -> Mapping[str, Any] | None:
        """Return the answer of the registry, None if its status is one of ``unknown``."""
        headers = self._headers if sent is None else {**self._headers, "content-type": _CONTENT}
        body = None if sent is None else msgspec.json.encode(sent)
        try:
            response = self._pool.request(
                method, self._url + path, body=body, headers=headers, redirect=False, preload_content=False
            )
            try:
                content = response.read(_ANSWER_BYTES_MAX)
            finally:
                response.close()
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(error) from error
        if response.status in unknown:
            return None
        if response.status != 200:
            raise self._refusal(response.status, content)
        try:
            answer = msgspec.json.decode(content, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._failure(f"the answer is not of a schema registry: {error}") from error
        return answer

    def _refusal(self, status: int, content: bytes) -> HeadraceError:
        try:
            told = msgspec.json.decode(content, type=dict[str, Any]).get("message")
        except (msgspec.DecodeError, UnicodeDecodeError):
            told = None
        why = self._shown(str(told) if told else content.decode("utf-8", "replace"))
        text = f"schema registry {self._url}: status {status}: {why}"
        if status in _RETRY_STATUSES:
            return RetriableError(text, plugin=self._format, option="registry_url")
        if status in (401, 403):
            return JobError(text, plugin=self._format, option="registry_user", hint="check user, password or token")
        if status == 409:
            hint = "the schema is not compatible with earlier versions of the subject: change it, or the subject's compatibility"
            return JobError(text, plugin=self._format, option="subject", hint=hint)
        return JobError(
            text, plugin=self._format, option="registry_url", hint="check that this is the address of a schema registry"
        )

    def _failure(self, text: str) -> JobError:
        return JobError(f"schema registry {self._url}: {text}", plugin=self._format, option="registry_url")

    def _unreachable(self, error: urllib3.exceptions.HTTPError) -> HeadraceError:
        reason = self._shown(str(error))
        text = f"schema registry {self._url}: {reason}"
        if isinstance(error, urllib3.exceptions.SSLError) and any(sign in reason for sign in _TLS_FAULTS):
            hint = "check the certificates, the name in the address, and that the server has TLS"
            return JobError(text, plugin=self._format, option="registry_ssl_ca", hint=hint)
        hint = "is the registry running, and is the address right (http or https, host, port)?"
        return RetriableError(text, plugin=self._format, option="registry_url", hint=hint)

    def _shown(self, text: str) -> str:
        text = " ".join(text.split())
        for secret in self._secrets:
            text = text.replace(secret, "***") if secret else text
        return text[:_QUOTED_CHARACTERS]

    def _login(self) -> dict[str, str]:
        settings = self._settings
        if settings.registry_token is not None:
            token = settings.registry_token.reveal()
            self._secrets.append(token)
            if not (token.isascii() and token.isprintable()):
                raise JobError(
                    "the token has characters that are not allowed in a header",
                    plugin=self._format,
                    option="registry_token",
                    hint="check whether its file or variable ends with a line break",
                )
            return {"authorization": f"Bearer {token}"}
        if settings.registry_password is not None:
            password = settings.registry_password.reveal()
            self._secrets.append(password)
            made = urllib3.make_headers(basic_auth=f"{settings.registry_user}:{password}".encode().decode("latin-1"))
            return dict(made)
        return {}


def _sent(text: str, kind: str) -> dict[str, str]:
    return {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
