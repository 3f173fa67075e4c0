"""A real SMTP server (aiosmtpd) that keeps what it gets in files, so that every process of a test sees it."""

from __future__ import annotations

import email
import email.policy
import itertools
import socket
import ssl
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from tests.servers.certificates import Certificates


class MailServer:
    """Listens on a free port. ``refused``: addresses and what is answered for them; ``answer``: what is answered to every mail."""

    def __init__(
        self, directory: Path, *, certificates: Certificates | None = None, tls: bool = False, login: bool = False
    ) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.refused: dict[str, str] = {}
        self.answer: str | None = None
        #: A text that makes a mail be refused.
        self.forbidden: bytes | None = None
        self.greeted = 0
        self._numbers = itertools.count()
        context = None
        if certificates is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates.server, certificates.server_key)
        options: dict[str, Any] = {}
        if context is not None and tls:
            options["ssl_context"] = context
        elif context is not None:
            options.update(tls_context=context, require_starttls=True)
        if login:
            options.update(authenticator=self._authenticate, auth_required=True, auth_require_tls=not tls)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self._options = options
        self.start()

    def start(self) -> None:
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port, **self._options)
        self._controller.start()

    def stop(self) -> None:
        self._controller.stop()

    def _authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        known = isinstance(data, LoginPassword) and (data.login, data.password) == (b"jobs", b"s3cret")
        return AuthResult(success=known, handled=False)

    async def handle_EHLO(
        self, server: Any, session: Any, envelope: Any, hostname: str, responses: list[str]
    ) -> list[str]:
        self.greeted += 1
        session.host_name = hostname
        return responses

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.answer is not None:
            return self.answer
        if self.forbidden is not None and self.forbidden in envelope.content:
            return "554 looks like spam"
        path = self.directory / f"{next(self._numbers):06}"
        path.write_bytes("\n".join(envelope.rcpt_tos).encode() + b"\n\n" + envelope.content)
        return "250 OK"

    def mails(self) -> list[tuple[list[str], EmailMessage]]:
        """Return the recipients and the messages in the order in which they came."""
        found = []
        for path in sorted(self.directory.iterdir()):
            recipients, _, content = path.read_bytes().partition(b"\n\n")
            message = email.message_from_bytes(content, policy=email.policy.SMTP)
            assert isinstance(message, EmailMessage)
            found.append((recipients.decode().split("\n"), message))
        return found

    def lines(self) -> list[str]:
        return [line for _, message in self.mails() for line in message.get_content().splitlines()]
