"""Requests to the server, and its errors as those of headrace."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import elastic_transport
import msgspec
import urllib3
from elastic_transport import NodeConfig, Serializer, Transport, Urllib3HttpNode
from headrace.foundation.errors import HeadraceError, JobError, RetriableError, did_you_mean
from headrace.interfaces.connection_options import client_tls_context

from headrace_elasticsearch.answers import bounded
from headrace_elasticsearch.settings import ElasticsearchSettings, urls_of

JSON = "application/json"
NDJSON = "application/x-ndjson"
#: Temporary errors: too busy, starting, shutting down, a shard without its primary, a gateway in between.
RETRIABLE_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
#: Parts of the texts of TLS errors that are permanent, unlike a connection that is cut in the handshake.
_TLS_FAULTS = ("CERTIFICATE", "certificate", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "ingerprint", "ALERT")


class _Bytes(Serializer):
    """Leaves bodies unchanged: the caller decodes them."""

    mimetype = JSON

    def loads(self, data: bytes) -> bytes:
        return data

    def dumps(self, data: bytes) -> bytes:
        return data


class _Node(Urllib3HttpNode):
    """A node that trusts only the certificates of its TLS context.

    The base class adds the authorities of Mozilla, or of the system, to the given ones.
    """

    def __init__(self, config: NodeConfig) -> None:
        super().__init__(config)
        if config.ssl_context is not None:
            self.pool.close()
            self.pool = urllib3.HTTPSConnectionPool(
                config.host,
                port=config.port,
                timeout=urllib3.Timeout(total=config.request_timeout),
                maxsize=config.connections_per_node,
                block=True,
                ssl_context=config.ssl_context,
            )
        self.pool.urlopen = bounded(self.pool.urlopen, config.request_timeout or 10.0)  # type: ignore[method-assign]


class Connection:
    """A pool of connections to the nodes of a cluster. Safe in several threads; must not be pickled or forked."""

    def __init__(self, settings: ElasticsearchSettings, *, connections: int = 4) -> None:
        self._settings = settings
        self._authorization = _authorization(settings)
        context = _tls_context(settings)
        nodes = [_node_config(settings, url.strip(), context, connections) for url in urls_of(settings)]
        bodies = dict.fromkeys((JSON, NDJSON, "text/plain", "text/html", "application/problem+json"), _Bytes())
        self._transport = Transport(
            nodes,
            node_class=_Node,
            serializers=bodies,
            max_retries=len(nodes) - 1,  # a node that cannot be reached: ask the next one
            retry_on_status=(),
            meta_header=False,
        )

    def request(
        self,
        method: str,
        path: str,
        body: bytes | Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        allow: Collection[int] = (),
        option: str = "index",
    ) -> tuple[int, bytes]:
        """Send a request; return status and body when it is 2xx or one of ``allow``.

        Raises RetriableError for temporary errors, JobError for all others, with ``option`` if the server's answer says no more.
        """
        target = path + ("?" + urlencode(query) if query else "")
        headers = {"accept": JSON}
        if self._authorization:
            headers["authorization"] = self._authorization
        if body is not None:
            headers["content-type"] = content_type
        sent = msgspec.json.encode(body) if isinstance(body, Mapping) else body
        try:
            answer = self._transport.perform_request(method, target, body=sent, headers=headers)
        except elastic_transport.TransportError as error:
            raise self._unreachable(error) from error
        status, content = answer.meta.status, answer.body or b""
        if 200 <= status < 300 or status in allow:
            return status, content
        raise self.refused(status, content, option)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, **more: Any) -> Any:
        """Like ``request``, for answers in JSON: return the decoded body. An empty one is None."""
        _, content = self.request(method, path, body, **more)
        return decoded(content) if content else None

    def check_product(self) -> None:
        """Check that Elasticsearch answers at the address. Raises JobError: address, certificates, login, or another server."""
        about = self.ask("GET", "/", option="url")
        version = about.get("version") if isinstance(about, dict) else None
        if not isinstance(version, dict) or not isinstance(version.get("number"), str):
            raise self.another_product(about)

    def another_product(self, answer: Any) -> JobError:
        """Return the error for an answer that Elasticsearch does not give."""
        return JobError(
            f"{self.where}: a server answers, but not like Elasticsearch: {str(answer)[:80]}",
            plugin="elasticsearch",
            option="url",
            hint="check host, port and path of the address, and any proxy between this machine and the server",
        )

    def close(self) -> None:
        """Close the connections. May be called twice."""
        self._transport.close()

    @property
    def where(self) -> str:
        """The server, for messages."""
        return f"Elasticsearch at {', '.join(url.strip() for url in urls_of(self._settings))}"

    def refused(self, status: int, content: bytes, option: str) -> HeadraceError:
        """Return the headrace exception for an answer that is an error."""
        kind, reason = error_of(content)
        where = f"{self.where}, index {self._settings.index!r}: {reason} (status {status}{kind and f', {kind}'})"
        if status in RETRIABLE_STATUSES:
            return RetriableError(where, plugin="elasticsearch")
        if status == 401:
            option, hint = self._login_option, "check user and password, or the API key"
        elif status == 403 and "block" in kind:
            hint = "the index takes no writes: remove its block (index.blocks.write, index.blocks.read_only)"
        elif status == 403:
            option, hint = self._login_option, "grant it what it needs, see docs/connectors/elasticsearch.md"
        else:
            hint = "does it exist, and is its name right?" if status == 404 else None  # type: ignore[assignment]
        return JobError(where, plugin="elasticsearch", option=option, hint=hint)

    @property
    def _login_option(self) -> str:
        return "api_key" if self._settings.api_key is not None else "user"

    def _unreachable(self, error: elastic_transport.TransportError) -> HeadraceError:
        text = f"{self.where}: {error.message}"
        if isinstance(error, elastic_transport.TlsError) and any(sign in error.message for sign in _TLS_FAULTS):
            option = "ssl_fingerprint" if self._settings.ssl_fingerprint else "ssl_ca"
            hint = "check the certificates, the name in the address, and that the server has TLS"
            return JobError(text, plugin="elasticsearch", option=option, hint=hint)
        if isinstance(error, elastic_transport.SerializationError):
            return JobError(
                text,
                plugin="elasticsearch",
                option="url",
                hint="check that the address is that of an Elasticsearch server",
            )
        hint = "is the server running, and is the address right (http or https, host, port)?"
        return RetriableError(text, plugin="elasticsearch", option="url", hint=hint)


def path_of(*parts: str) -> str:
    """Return a path of parts, each escaped: a name never reaches into another request."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def index_path(index: str, *parts: str) -> str:
    """Return a path that begins with an expression of index names, whose commas and stars have a meaning."""
    return "/" + quote(index, safe=",*") + path_of(*parts)


def decoded(content: bytes) -> Any:
    """Decode an answer. Raises JobError when it is not JSON."""
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise JobError(
            f"the server's answer is not JSON: {content[:80]!r}", plugin="elasticsearch", option="url",
            hint="check that the address is that of an Elasticsearch server",
        ) from error  # fmt: skip


def error_of(content: bytes) -> tuple[str, str]:
    """Return type and reason of an error as the server gives it; the type may be empty."""
    try:
        answer = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return "", content[:200].decode("utf-8", "replace").strip() or "no reason given"
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return "", str(error or "no reason given")
    return str(error.get("type", "")), reason_of(error)


def reason_of(error: Mapping[str, Any]) -> str:
    """Return the reason of an error with the reasons behind it."""
    reasons: list[str] = []
    found: Any = error
    if failed := error.get("failed_shards"):
        found = failed[0].get("reason", error)
    while isinstance(found, dict) and len(reasons) < 4:
        reason = str(found.get("reason", found.get("type", "")))
        if reason and reason not in reasons:
            reasons.append(reason)
        found = found.get("caused_by")
    return ": ".join(reasons) or "no reason given"


def index_names(connection: Connection) -> list[str]:
    """Return the names that the user may see, for hints. Raises what a request raises."""
    found = connection.ask("GET", "/_resolve/index/*", allow=(403,))
    kinds = ("indices", "aliases", "data_streams")
    return [entry["name"] for kind in kinds for entry in found.get(kind, ())]


def no_such_index(connection: Connection, index: str, *, hint: str = "") -> JobError:
    """Return the error for an index that does not exist, with the most similar name."""
    nearest = did_you_mean(index, index_names(connection), known="indices")
    return JobError(
        f"{connection.where}: there is no index, alias or data stream {index!r} that the user can see",
        plugin="elasticsearch",
        option="index",
        hint=nearest + hint,
    )


def _authorization(settings: ElasticsearchSettings) -> str | None:
    if settings.api_key is not None:
        return f"ApiKey {settings.api_key.reveal()}"
    if settings.user is not None and settings.password is not None:
        login = f"{settings.user}:{settings.password.reveal()}"
        return f"Basic {base64.b64encode(login.encode()).decode()}"
    return None


def _tls_context(settings: ElasticsearchSettings) -> ssl.SSLContext | None:
    """Return the TLS context with the trusted certificates; None for a fingerprint, which the transport compares."""
    if settings.ssl_fingerprint is not None:
        return None
    if not settings.ssl_verify:
        # The user has chosen this, so no warning at each connection.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return client_tls_context(settings, plugin="elasticsearch", verify=settings.ssl_verify)


def _node_config(
    settings: ElasticsearchSettings, url: str, context: ssl.SSLContext | None, connections: int
) -> NodeConfig:
    parts = urlsplit(url)
    tls: dict[str, Any] = {}
    if parts.scheme == "https":
        fingerprint = settings.ssl_fingerprint
        tls = {"ssl_context": context} if fingerprint is None else {"ssl_assert_fingerprint": fingerprint}
    assert parts.hostname is not None  # checked with the options
    return NodeConfig(
        scheme=parts.scheme,
        host=parts.hostname,
        port=parts.port or (443 if parts.scheme == "https" else 9200),
        path_prefix=parts.path,
        connections_per_node=connections,
        request_timeout=max(settings.request_timeout, timedelta(milliseconds=1)).total_seconds(),
        http_compress=settings.compress,
        **tls,
    )
