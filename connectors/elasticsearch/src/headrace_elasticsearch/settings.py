"""The options of source and sink."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

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
from headrace.interfaces.settings import Secret, Settings, option
from headrace.interfaces.sink import SinkSettings

_Url = Annotated[str | list[str], option("URL of the server, or a list of URLs of one cluster")]
_ApiKey = Annotated[
    Secret | None, option('encoded API key, instead of user and password; "${VARIABLE}" reads an environment variable')
]
_SslFingerprint = Annotated[
    str | None,
    option("SHA-256 fingerprint of the server's certificate, which is then trusted without a certificate authority"),
]
_Compress = Annotated[bool, option("whether requests and answers are compressed with gzip")]
_RequestTimeout = Annotated[timedelta, option("how long to wait for the answer to a request")]


class ElasticsearchSourceSettings(Settings, frozen=True, kw_only=True):
    """Options of ``from_elasticsearch``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("index",)

    index: Annotated[str, option("index, alias or data stream to read; several as a pattern or separated by commas")]
    url: _Url = "http://localhost:9200"
    query: Annotated[
        str | dict[str, Any] | None,
        option("query for the documents to read, as JSON object or in Lucene's syntax; default: all documents"),
    ] = None
    fields: Annotated[list[str] | None, option("fields that the server sends; default: whole documents")] = None
    slices: Annotated[
        int, option("number of queues per shard of the index; queues can be read in parallel", ge=1, le=1024)
    ] = 1
    page_rows: Annotated[int, option("maximum number of documents in one answer of the server", ge=1, le=10_000)] = (
        2_000
    )
    keep_alive: Annotated[
        timedelta, option("how long the server keeps an unused snapshot of the index (point in time)")
    ] = timedelta(minutes=5)
    refresh: Annotated[
        bool,
        option(
            "whether the index is refreshed before it is read, so that all written documents are visible; False for users "
            "who may only read"
        ),
    ] = True
    user: User = None
    password: Password = None
    api_key: _ApiKey = None
    plaintext_login: Annotated[
        bool,
        option("allow a login that sends the password without TLS; anybody on the network can then read it"),
    ] = False
    ssl_ca: SslCa = None
    ssl_fingerprint: _SslFingerprint = None
    ssl_certificate: SslCertificate = None
    ssl_key: SslKey = None
    ssl_verify: SslVerify = True
    compress: _Compress = False
    request_timeout: _RequestTimeout = timedelta(minutes=1)

    def validate(self) -> None:
        check_connection(self)
        if not self.index.strip():
            raise OptionError("the name is an empty text", plugin="elasticsearch", option="index")


class ElasticsearchSinkSettings(SinkSettings, frozen=True, kw_only=True):
    """Options of ``to_elasticsearch``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("index",)

    index: Annotated[
        str,
        option(
            'index, alias or data stream to write; "alerts-%Y.%m.%d" inserts the time of index_time, "alerts-{tenant}" the '
            "value of a column"
        ),
    ]
    url: _Url = "http://localhost:9200"
    id: Annotated[
        str | list[str] | None,
        option(
            'id of the document: a column, several, or a text with columns such as "{tenant}-{order}"; default: the row\'s '
            "position in its source"
        ),
    ] = None
    id_delimiter: Annotated[str, option("separator between the values of several columns of id")] = "_"
    index_time: Annotated[
        str | None, option("timestamp or date column whose time (in UTC) replaces the % signs in index")
    ] = None
    mode: Annotated[
        Literal["index", "create"],
        option("what happens when the document already exists: index replaces it, create keeps it"),
    ] = "index"
    version: Annotated[
        str | None,
        option(
            'version of a document: "offset", or an integer column; a row with a smaller version does not replace the '
            "document"
        ),
    ] = None
    routing: Annotated[str | None, option("column, or text with columns, whose value selects the shard")] = None
    pipeline: Annotated[str | None, option("ingest pipeline that processes the documents")] = None
    exclude: Annotated[
        list[str] | None,
        option(
            "columns that are not stored in the document, for example those that only give id, routing, index or version"
        ),
    ] = None
    data_stream: Annotated[
        bool, option("whether index is a data stream; index_time becomes @timestamp if there is no such column")
    ] = False
    create_index: Annotated[
        bool,
        option(
            "create a missing index, with mappings from the stream's columns; for patterns and data streams, an index "
            "template"
        ),
    ] = False
    mappings: Annotated[
        dict[str, Any] | None,
        option('with create_index: field types that differ from the default, such as {"message": "text"}'),
    ] = None
    index_settings: Annotated[
        dict[str, Any] | None, option('with create_index: settings of the index, such as {"number_of_shards": 3}')
    ] = None
    refresh: Annotated[
        Literal["false", "wait_for", "true"],
        option(
            "when searches see the rows: 'false' after the next refresh, 'wait_for' waits for that refresh, 'true' refreshes "
            "at once"
        ),
    ] = "false"
    request_rows: Annotated[int, option("maximum number of rows in one request", ge=1)] = 1_000
    request_bytes: Annotated[int, option("maximum size of one request in bytes, before compression", ge=1)] = (
        8 * 1024**2
    )
    parallel_requests: Annotated[int, option("maximum number of requests at the same time", ge=1, le=64)] = 4
    user: User = None
    password: Password = None
    api_key: _ApiKey = None
    plaintext_login: Annotated[
        bool,
        option("allow a login that sends the password without TLS; anybody on the network can then read it"),
    ] = False
    ssl_ca: SslCa = None
    ssl_fingerprint: _SslFingerprint = None
    ssl_certificate: SslCertificate = None
    ssl_key: SslKey = None
    ssl_verify: SslVerify = True
    compress: _Compress = False
    request_timeout: _RequestTimeout = timedelta(minutes=1)

    @property
    def creates(self) -> bool:
        """Whether an existing document is kept: data streams can do nothing else."""
        return self.data_stream or self.mode == "create"

    @property
    def id_template(self) -> str | None:
        """``id`` as a column, or as a text with columns."""
        return self.id_delimiter.join(f"{{{name}}}" for name in self.id) if isinstance(self.id, list) else self.id

    def validate(self) -> None:
        check_connection(self)
        if not self.index.strip():
            raise _refused("index", "the name is an empty text")
        if has_time(self.index) and self.index_time is None:
            raise _refused(
                "index_time",
                f"index {self.index!r} contains % signs (a date pattern), but no option names the column with the time",
            )
        if self.index_time is not None and not has_time(self.index) and not self.data_stream:
            raise _refused(
                "index_time",
                "this option has no effect, because index contains no % signs (no date pattern)",
                "write 'alerts-%Y.%m.%d'",
            )
        if self.data_stream and (has_time(self.index) or columns_of(self.index)):
            raise _refused(
                "index",
                "the name of a data stream cannot contain a date pattern: the server creates its indices itself",
            )
        if self.version is not None and self.creates:
            raise _refused(
                "version", "a version has no effect when documents are never replaced", "remove it, or mode='create'"
            )
        if isinstance(self.id, list) and not self.id:
            raise _refused("id", "the list of columns is empty")
        if set("{}") & set(self.id_delimiter):
            raise _refused("id_delimiter", "braces stand for columns only in a text", "write the text as the option id")
        if self.version is not None and self.id is None:
            raise _refused(
                "version",
                "a version compares documents with the same id, but no id is given",
                "name the column of the id: id='...'",
            )
        for name in ("mappings", "index_settings"):
            if getattr(self, name) is not None and not self.create_index:
                raise _refused(name, "it has an effect only together with create_index", "add create_index=True")


ElasticsearchSettings = ElasticsearchSourceSettings | ElasticsearchSinkSettings

_COLUMN = re.compile(r"\{([^{}]+)\}")


def columns_of(template: str) -> list[str]:
    """Return the columns that a text with ``{column}`` in it names."""
    return _COLUMN.findall(template)


def key_columns(key: str) -> list[str]:
    """Return the columns of an ``id`` or ``routing``: those of its text, or the one that it is."""
    return columns_of(key) or [key]


def has_time(index: str) -> bool:
    """Return whether an index's name has format codes of strftime; ``%%`` is a plain %."""
    return "%" in _COLUMN.sub("", index)


def urls_of(settings: ElasticsearchSettings) -> list[str]:
    """Return the addresses."""
    return settings.url.split(",") if isinstance(settings.url, str) else list(settings.url)


def check_connection(settings: ElasticsearchSettings) -> None:
    """Check the options of the connection. Raises OptionError, which never quotes a text that may hold a password."""
    for url in urls_of(settings):
        parts = urlsplit(url.strip())
        if parts.username is not None or parts.password is not None:
            raise _refused("url", "user and password must not be in the address, where they would be shown",
                           "give them as user='...', password='${VARIABLE}'")  # fmt: skip
        try:
            port_is_good = parts.port is None or parts.port > 0
        except ValueError:
            port_is_good = False
        if parts.query or parts.fragment:
            raise _refused("url", "the address has a part behind '?' or '#', which may hold a secret and would be shown",
                           "write 'https://search.example.org:9200'; an API key goes to api_key='${VARIABLE}'")  # fmt: skip
        if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_good:
            raise _refused("url", f"{url!r} is not an address such as 'https://search.example.org:9200'")
        secured = ("ssl_ca", "ssl_fingerprint", "ssl_certificate", "ssl_key")
        if parts.scheme == "http" and (given := [name for name in secured if getattr(settings, name)]):
            raise _refused(given[0], f"{url!r} is not an address with TLS", "write https://")
        logs_in = settings.api_key is not None or settings.password is not None
        if parts.scheme == "http" and logs_in and not settings.plaintext_login and not is_loopback(parts.hostname):
            raise _refused("url", f"{url!r} has no TLS: the login would be sent unencrypted, to a server whose identity is not checked",
                           "write https://; plaintext_login=True allows it in a network that you trust")  # fmt: skip
    if settings.api_key is not None and (settings.user is not None or settings.password is not None):
        raise _refused("api_key", "an API key cannot be combined with user and password", "give only one of them")
    if (settings.user is None) != (settings.password is None):
        raise _refused("password" if settings.password is None else "user", "give both user and password, or neither")
    check_client_key(settings, plugin="elasticsearch")
    if settings.ssl_fingerprint is not None:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", settings.ssl_fingerprint.replace(":", "")):
            raise _refused("ssl_fingerprint", "it must be a SHA-256 fingerprint: 64 hexadecimal digits")
        if settings.ssl_ca or not settings.ssl_verify:
            raise _refused(
                "ssl_fingerprint", "with a fingerprint, only the fingerprint is checked", "remove ssl_ca and ssl_verify"
            )


def _refused(name: str, problem: str, hint: str | None = None) -> OptionError:
    return OptionError(problem, plugin="elasticsearch", option=name, hint=hint)
