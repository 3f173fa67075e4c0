"""A connection to an SMTP server. It converts failures to errors of headrace."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Mapping, Sequence
from email.message import EmailMessage

from headrace.foundation.errors import HeadraceError, JobError, RetriableError

from headrace_mail.settings import MailSinkSettings

#: Answers to MAIL and DATA that mean a problem of the login or the sender, not of the mail.
_JOB_CODES = frozenset({530, 534, 535, 538})


class RefusedMailError(Exception):
    """The server refuses a mail for all of its recipients; the text says why."""


class Client:
    """Sends mails over one connection, which is opened again when the server has closed it. Used by one thread at a
    time.
    """

    def __init__(self, settings: MailSinkSettings) -> None:
        self._settings = settings
        self._connection: smtplib.SMTP | None = None
        self._context = _tls_context(settings)

    @property
    def where(self) -> str:
        """The address of the server, for messages."""
        host, port = self._settings.address
        return f"{host}:{port}"

    def connect(self) -> smtplib.SMTP:
        """Return the connection. Raises RetriableError, and JobError for a refused login or certificate."""
        if self._connection is None:
            try:
                self._connection = self._connected()
            except (OSError, smtplib.SMTPException) as error:
                raise self._failed(error) from error
        return self._connection

    def send(self, message: EmailMessage, to: Sequence[str]) -> Mapping[str, str]:
        """Send a mail. Return the recipients that the server has refused permanently, with the reasons. The others have
        received it.

        Raises RefusedMailError, RetriableError and JobError. In these cases no recipient is known to have received the
        mail.
        """
        connection = self.connect()
        try:
            refused = connection.send_message(message, self._settings.sender, list(to))
        except smtplib.SMTPRecipientsRefused as error:
            refused = error.recipients
            if any(code < 500 for code, _ in refused.values()):
                raise self._failed(error) from error
        except smtplib.SMTPNotSupportedError as error:
            raise RefusedMailError(f"{self.where} cannot accept it: {error}") from None
        except (smtplib.SMTPDataError, smtplib.SMTPSenderRefused) as error:
            if error.smtp_code < 500 or error.smtp_code in _JOB_CODES or isinstance(error, smtplib.SMTPSenderRefused):
                raise self._failed(error) from error
            raise RefusedMailError(f"{self.where} answered {error.smtp_code} {_text(error.smtp_error)}") from None
        except (OSError, smtplib.SMTPException) as error:
            raise self._failed(error) from error
        return {address: f"{code} {_text(said)}" for address, (code, said) in refused.items()}

    def close(self) -> None:
        """Close the connection. May be called twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.quit()
            except (OSError, smtplib.SMTPException):
                connection.close()

    def _connected(self) -> smtplib.SMTP:
        settings = self._settings
        host, port = settings.address
        seconds = settings.timeout.total_seconds()
        made = (
            smtplib.SMTP_SSL(host, port, timeout=seconds, context=self._context)
            if settings.security == "tls"
            else smtplib.SMTP(host, port, timeout=seconds)
        )
        try:
            if settings.security == "starttls":
                made.starttls(context=self._context)
            if settings.user is not None and settings.password is not None:
                made.login(settings.user, settings.password.reveal())
        except BaseException:
            made.close()
            raise
        return made

    def _failed(self, error: Exception) -> HeadraceError:
        """Return the error of headrace for an error. The next mail uses a new connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        text = f"{self.where}: {_reason(error)}"
        if isinstance(error, smtplib.SMTPAuthenticationError) and error.smtp_code >= 500:
            return JobError(text, plugin="mail", option="password", hint="check user and password")
        if isinstance(error, ssl.SSLCertVerificationError):
            return JobError(
                text,
                plugin="mail",
                option="ssl_ca",
                hint="give the certificate of the authority that signed the server's certificate",
            )
        if isinstance(error, smtplib.SMTPNotSupportedError):
            hint = "the server has no STARTTLS or no login: check port and security"
            return JobError(text, plugin="mail", option="security", hint=hint)
        if isinstance(error, smtplib.SMTPSenderRefused) and error.smtp_code >= 500:
            return JobError(
                text, plugin="mail", option="sender", hint="the server may require a login, or another sender address"
            )
        return RetriableError(
            text,
            plugin="mail",
            option="host",
            hint="check that the server is running, and that it accepts mail from this machine",
        )


def _reason(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "; ".join(f"{address}: {code} {_text(said)}" for address, (code, said) in error.recipients.items())
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{error.smtp_code} {_text(error.smtp_error)}"
    return str(error) or type(error).__name__


def _text(said: bytes | str) -> str:
    return " ".join((said.decode("utf-8", "replace") if isinstance(said, bytes) else said).split())[:300]


def _tls_context(settings: MailSinkSettings) -> ssl.SSLContext | None:
    if settings.security == "none":
        return None
    try:
        return ssl.create_default_context(cafile=settings.ssl_ca)
    except OSError as error:
        raise JobError(
            f"cannot use {settings.ssl_ca!r}: {error.strerror or error}",
            plugin="mail",
            option="ssl_ca",
            hint="name a PEM file",
        ) from error
