"""What headrace-mail offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_sinks() -> Mapping[str, str]:
    return {"mail": "headrace_mail.sink:MailSink"}
