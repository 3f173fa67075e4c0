"""Mail for headrace: a sink that sends rows by SMTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_mail.settings import MailSinkSettings
    from headrace_mail.sink import MailSink

__version__ = "0.1.0"

__all__ = ["MailSink", "MailSinkSettings"]
_PLACES = {"MailSink": "headrace_mail.sink", "MailSinkSettings": "headrace_mail.settings"}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the plug-in module is in this package and must stay cheap to import.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
