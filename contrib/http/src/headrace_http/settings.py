"""The options of the sink."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from headrace.foundation.addresses import is_loopback
from headrace.foundation.errors import OptionError
from headrace.interfaces.connection_options import (
    Password,
    SslCa,
    SslCertificate,
    SslKey,
    SslVerify,
    User,
    check_client_key,
)
from headrace.interfaces.settings import Secret, option
from headrace.interfaces.sink import SinkSettings

#: The placeholder of the rows in a template.
ROWS = "$rows"
#: Headers that the sink sets itself, or that decide where a request ends.
_OWN_HEADERS = frozenset(
    {"authorization", "content-length", "content-type", "content-encoding", "host", "idempotency-key", "transfer-encoding",
     "headrace-writer", "headrace-queue", "headrace-first", "headrace-last"}
)  # fmt: skip
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


Url: TypeAlias = Annotated[str, option("address that the requests go to")]


class RequestSinkSettings(SinkSettings, frozen=True, kw_only=True):
    """Options of every sink that sends rows in HTTP requests. A derived class adds the options of its bodies."""

    in_pictures: ClassVar[tuple[str, ...]] = ("url",)
    #: The name of the sink in errors.
    plugin_name: ClassVar[str] = "http"

    if TYPE_CHECKING:
        # Each sink declares ``url`` again before its own options, so that it is the first positional argument.
        url: str
    secret_path: Annotated[
        Secret | None,
        option('secret end of the address, put behind url with a slash: "${VARIABLE}" reads an environment variable'),
    ] = None
    headers: Annotated[dict[str, str], option("further headers of each request; no secrets")] = msgspec.field(
        default_factory=dict
    )
    token: Annotated[Secret | None, option('bearer token; "${VARIABLE}" reads an environment variable')] = None
    user: User = None
    password: Password = None
    api_key: Annotated[Secret | None, option("key that is sent in the header key_header")] = None
    key_header: Annotated[str, option("header that api_key is sent in")] = "X-API-Key"
    signature_key: Annotated[
        Secret | None, option("key by which each body is signed (HMAC with SHA-256), in the header signature_header")
    ] = None
    signature_header: Annotated[str, option("header of the signature")] = "X-Hub-Signature-256"
    plaintext_login: Annotated[
        bool, option("allow secrets in requests without TLS; anybody on the network can then read them")
    ] = False
    request_rows: Annotated[int, option("maximum number of rows in one request", ge=1)] = 500
    request_bytes: Annotated[int, option("maximum size of a body, before compression; one row may be larger", ge=1)] = (
        1024**2
    )
    parallel_requests: Annotated[
        int,
        option(
            "maximum number of requests of one queue at the same time; with more than 1, requests may overtake each other",
            ge=1,
            le=64,
        ),
    ] = 1
    request_timeout: Annotated[timedelta, option("how long to wait for the answer to a request")] = timedelta(
        seconds=30
    )
    retry_after_max: Annotated[timedelta, option("longest wait that a server's Retry-After is followed for")] = (
        timedelta(minutes=5)
    )
    stored_statuses: Annotated[
        tuple[int, ...],
        option("statuses besides 2xx that say that the rows are stored, such as 409 for rows that are known"),
    ] = ()
    retry_statuses: Annotated[tuple[int, ...], option("statuses after which the same request is sent again")] = (
        408, 425, 429, 500, 502, 503, 504, 507, 520, 521, 522, 523, 524,
    )  # fmt: skip
    dead_letter_statuses: Annotated[
        tuple[int, ...], option("statuses that blame the rows: those at fault are found and go to the dead letters")
    ] = (400, 409, 413, 422)
    ssl_ca: SslCa = None
    ssl_certificate: SslCertificate = None
    ssl_key: SslKey = None
    ssl_verify: SslVerify = True

    @property
    def rows_per_request(self) -> int:
        """The maximum number of rows in one request."""
        return self.request_rows

    def validate(self) -> None:
        _check_address(self)
        _check_headers(self)
        _check_statuses(self)
        if (self.user is None) != (self.password is None):
            missing = "password" if self.password is None else "user"
            raise refused(missing, "give both user and password, or neither", plugin=self.plugin_name)
        if self.token is not None and self.user is not None:
            problem = "a token takes the place of user and password"
            raise refused("token", problem, "give one of them", plugin=self.plugin_name)
        check_client_key(self, plugin=self.plugin_name)


class HttpSinkSettings(RequestSinkSettings, frozen=True, kw_only=True):
    """Options of ``to_http``."""

    url: Url
    method: Annotated[Literal["POST", "PUT", "PATCH"], option("method of the requests")] = "POST"
    body: Annotated[
        Literal["array", "ndjson", "row"],
        option(
            "what a request holds: array: rows as one JSON array; ndjson: rows as JSON objects, one on a line; row: one row "
            "as a JSON object"
        ),
    ] = "array"
    template: Annotated[
        str | None,
        option("JSON text around the rows, which replace $rows in it; default: the rows alone"),
    ] = None
    row_id: Annotated[
        str | None,
        option("key that is added to each object: an id of the row, the same one whenever the row is sent"),
    ] = None
    json_columns: Annotated[
        tuple[str, ...], option("text columns whose values are JSON; they are sent as JSON, not as strings")
    ] = ()
    content_type: Annotated[
        str | None, option("content type of the requests; default: application/json, or application/x-ndjson")
    ] = None
    compress: Annotated[bool, option("whether bodies are compressed with gzip")] = False

    @property
    def rows_per_request(self) -> int:
        """The maximum number of rows in one request."""
        return 1 if self.body == "row" else self.request_rows

    def validate(self) -> None:
        super().validate()
        if self.template is not None:
            _check_template(self.template, self.body)


def refused(name: str, problem: str, hint: str | None = None, *, plugin: str = "http") -> OptionError:
    """Return the error for an option that cannot be used."""
    return OptionError(problem, plugin=plugin, option=name, hint=hint)


def _check_address(settings: RequestSinkSettings) -> None:
    """Check the address. The errors never quote a part that may be a password."""
    parts = urlsplit(settings.url)
    if parts.username is not None or parts.password is not None:
        raise refused("url", "user and password must not be in the address, where they would be shown",
                      "give them as user='...', password='${VARIABLE}'", plugin=settings.plugin_name)  # fmt: skip
    try:
        port_is_good = parts.port is None or parts.port > 0
    except ValueError:
        port_is_good = False
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_good or parts.fragment:
        raise refused(
            "url", "it is not an address such as 'https://hooks.example.org/events'", plugin=settings.plugin_name
        )
    if parts.query and settings.secret_path is not None:
        raise refused("url", "secret_path is appended to the address, and this address has a part after '?'",
                      "move that part to the end of the secret", plugin=settings.plugin_name)  # fmt: skip
    if parts.scheme == "https":
        return
    secured = ("ssl_ca", "ssl_certificate", "ssl_key")
    if given := [name for name in secured if getattr(settings, name)]:
        raise refused(given[0], "the address has no TLS", "write https://", plugin=settings.plugin_name)
    # A signature does not reveal its key, so it needs no TLS.
    has_secret = any((settings.token, settings.password, settings.api_key, settings.secret_path))
    if has_secret and not settings.plaintext_login and not is_loopback(parts.hostname):
        raise refused("url", "the address has no TLS: the secret would be sent unencrypted, to a server whose identity is not checked",
                      "write https://; plaintext_login=True allows it in a network that you trust",
                      plugin=settings.plugin_name)  # fmt: skip


def _check_headers(settings: RequestSinkSettings) -> None:
    for option_name in ("key_header", "signature_header"):
        if not HEADER_NAME.fullmatch(getattr(settings, option_name)):
            raise refused(
                option_name,
                f"{getattr(settings, option_name)!r} is not a name of a header",
                plugin=settings.plugin_name,
            )
    for name, value in settings.headers.items():
        if not HEADER_NAME.fullmatch(name):
            raise refused("headers", f"{name!r} is not a name of a header", plugin=settings.plugin_name)
        if name.lower() in _OWN_HEADERS:
            raise refused(
                "headers",
                f"the sink itself sets the header {name!r}",
                _instead(name.lower()),
                plugin=settings.plugin_name,
            )
        if not value.isprintable() or not value.isascii():
            raise refused("headers", f"the value of {name!r} is not printable ASCII", plugin=settings.plugin_name)


def _instead(header: str) -> str:
    others = {"authorization": "use token, or user and password", "content-type": "use content_type"}
    return others.get(header, "leave it out")


def _check_statuses(settings: RequestSinkSettings) -> None:
    names = ("stored_statuses", "retry_statuses", "dead_letter_statuses")
    for name in names:
        if wrong := [status for status in getattr(settings, name) if not 300 <= status <= 599]:
            raise refused(name, f"{wrong[0]} is not a status from 300 to 599", plugin=settings.plugin_name)
    # A status in an option has priority over the defaults of other options: for 409, stored_statuses alone is enough.
    both = set(settings.retry_statuses) & set(settings.dead_letter_statuses) - set(settings.stored_statuses)
    if both:
        raise refused(
            "retry_statuses",
            f"status {min(both)} is also in dead_letter_statuses",
            "remove it from one of the two options",
            plugin=settings.plugin_name,
        )


def _check_template(template: str, body: str) -> None:
    if template.count(ROWS) != 1:
        raise refused("template", f"{ROWS} must occur in it exactly once", "'{\"events\": $rows}'")
    if body == "ndjson":
        raise refused(
            "template", "with one JSON object per line, nothing can be written around the rows", "use body='array'"
        )
    try:
        json.loads(template.replace(ROWS, "{}"))
    except ValueError as error:
        raise refused("template", f"with rows inserted for {ROWS} it is not JSON: {error}") from None
