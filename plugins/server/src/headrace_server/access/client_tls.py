"""How certificates of servers are checked, by commands and by other servers of a registry."""

from __future__ import annotations

import os
import ssl

from headrace.foundation.errors import OptionError

#: For servers with TLS: the authority of the server, in addition to those that the system trusts; the client's certificate and key.
AUTHORITY_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE = (
    "HEADRACE_SERVER_AUTHORITY",
    "HEADRACE_CLIENT_CERTIFICATE",
    "HEADRACE_CLIENT_KEY",
)


def client_tls_context() -> ssl.SSLContext:
    """Return how a server's certificate is checked. Raises OptionError for files that cannot be used."""
    context = ssl.create_default_context()
    authority, certificate, key = (
        os.environ.get(each) for each in (AUTHORITY_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE)
    )
    variable = AUTHORITY_VARIABLE
    try:
        if authority:
            context.load_verify_locations(authority)
        variable = CERTIFICATE_VARIABLE
        if certificate:
            context.load_cert_chain(certificate, key or None)
    except OSError as error:  # ssl.SSLError is one
        raise OptionError(f"the file cannot be used: {error}", option=variable) from None
    return context
