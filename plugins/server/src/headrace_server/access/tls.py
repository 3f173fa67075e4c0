"""TLS of the server's port."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Annotated, Any, Literal

from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import Secret, Settings, option

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class TLSOptions(Settings, frozen=True, kw_only=True):
    """The server's certificate, and the requirements for certificates of clients."""

    certificate: Annotated[str, option("file with the server's certificate and its chain, PEM")]
    key: Annotated[str, option("file with its private key, PEM; only the server's user may read it")]
    key_password: Annotated[Secret | None, option("password of the private key")] = None
    client_authority: Annotated[str | None, option("certificates of who signs clients; clients then need one")] = None
    version_min: Annotated[Literal["1.2", "1.3"], option("oldest version of TLS that is spoken")] = "1.2"

    def context(self) -> ssl.SSLContext:
        """Return the context of the port. Called before the server starts. Raises OptionError for files that do not fit."""
        self._check_key_file()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[self.version_min]
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
        # Without a password OpenSSL would ask the terminal for it.
        password = self.key_password.reveal() if self.key_password is not None else ""
        try:
            context.load_cert_chain(self.certificate, self.key, lambda: password)
        except (OSError, ssl.SSLError) as error:
            raise OptionError(
                f"certificate {self.certificate!r} and key {self.key!r} cannot be used: {_reason(error)}",
                option="certificate",
                hint="both must be PEM files, and the key must belong to the certificate; an encrypted key needs key_password",
            ) from None
        if self.client_authority is not None:
            try:
                context.load_verify_locations(self.client_authority)
            except (OSError, ssl.SSLError) as error:
                raise OptionError(
                    f"{self.client_authority!r} cannot be used: {_reason(error)}", option="client_authority"
                ) from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def uvicorn_options(self) -> dict[str, Any]:
        """Return what ``uvicorn.Config`` takes; its own options have no oldest version."""
        context = self.context()
        return {"ssl_context_factory": lambda config, default: context}

    def _check_key_file(self) -> None:
        try:
            found = Path(self.key).stat()
        except OSError as error:
            raise OptionError(f"key {self.key!r} cannot be read: {error.strerror}", option="key") from None
        # As PostgreSQL has it: its owner alone, or root and a group, which is how Kubernetes mounts a secret for a user.
        allowed = 0o740 if found.st_uid == 0 else 0o700
        if found.st_mode & 0o777 & ~allowed:
            raise OptionError(f"other users can read the key {self.key!r}", option="key", hint=f"chmod 600 {self.key}")


def _reason(error: OSError | ssl.SSLError) -> str:
    return (getattr(error, "reason", None) if isinstance(error, ssl.SSLError) else error.strerror) or type(
        error
    ).__name__
