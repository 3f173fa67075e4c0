"""The options of the source."""

from __future__ import annotations

from typing import Annotated, ClassVar

from headrace.foundation.addresses import is_loopback
from headrace.interfaces.settings import Secret, option
from headrace_buffer import BufferedSourceSettings

from headrace_http.settings import HEADER_NAME, refused


class HttpSourceSettings(BufferedSourceSettings, frozen=True, kw_only=True):
    """Options of ``from_http``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("port", "path")

    port: Annotated[int, option("TCP port to listen on; 0: a free one, which the log names", ge=0, le=65_535)]
    host: Annotated[str, option("address to listen on; 0.0.0.0 or ::: all of this machine")] = "127.0.0.1"
    path: Annotated[str, option("path that takes records")] = "/"
    token: Annotated[
        Secret | None, option('bearer token that senders must give; "${VARIABLE}" reads an environment variable')
    ] = None
    signature_key: Annotated[
        Secret | None,
        option(
            "key by which senders sign each body (HMAC with SHA-256 of what is sent), in the header signature_header"
        ),
    ] = None
    signature_header: Annotated[str, option("header of the signature, sha256=… in hexadecimal digits")] = (
        "X-Hub-Signature-256"
    )
    anonymous: Annotated[
        bool, option("whether anybody who reaches the port may send, on an address beside loopback")
    ] = False
    plaintext_login: Annotated[
        bool,
        option("allow tokens without TLS on an address beside loopback; anybody on the network can then read them"),
    ] = False
    ssl_certificate: Annotated[str | None, option("file with the certificate of this server, and those between")] = None
    ssl_key: Annotated[str | None, option("file with its key, if that is not in ssl_certificate")] = None
    ssl_client_ca: Annotated[
        str | None, option("file with certificates; senders must have one of their own that these have signed")
    ] = None
    request_bytes: Annotated[int, option("largest body of a request, after decompression", ge=1)] = 16 * 1024**2
    max_connections: Annotated[int, option("requests at the same time; more are answered with 503", ge=1)] = 1_000

    def validate(self) -> None:
        if not self.path.startswith("/") or "?" in self.path or "#" in self.path:
            raise refused("path", f"{self.path!r} is not a path such as '/events'")
        if not HEADER_NAME.fullmatch(self.signature_header):
            raise refused("signature_header", f"{self.signature_header!r} is not a name of a header")
        for name in ("ssl_key", "ssl_client_ca"):
            if getattr(self, name) and not self.ssl_certificate:
                raise refused(
                    name, "it can be used only together with ssl_certificate", "give the certificate of this server too"
                )
        if is_loopback(self.host):
            return
        if not (self.token or self.signature_key or self.ssl_client_ca or self.anonymous):
            raise refused(
                "token", f"anybody who reaches {self.host} could send records",
                'set token="${VARIABLE}", signature_key or ssl_client_ca; anonymous=True allows it',
            )  # fmt: skip
        if self.token and not self.ssl_certificate and not self.plaintext_login:
            raise refused(
                "ssl_certificate", "without TLS the token would be sent unencrypted",
                "name a certificate; plaintext_login=True allows it in a network that you trust, or behind a proxy with TLS",
            )  # fmt: skip
