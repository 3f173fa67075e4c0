"""What this plug-in offers. Classes are named as text, so that they are imported only when they are used."""

from collections.abc import Mapping

import headrace as hr


@hr.hookimpl
def headrace_sources() -> Mapping[str, str]:
    return {"syslog": "headrace_syslog.source:SyslogSource"}


@hr.hookimpl
def headrace_sinks() -> Mapping[str, str]:
    return {"syslog": "headrace_syslog.sink:SyslogSink"}


@hr.hookimpl
def headrace_codecs() -> Mapping[str, str]:
    return {"syslog": "headrace_syslog.codec:SyslogCodec"}
