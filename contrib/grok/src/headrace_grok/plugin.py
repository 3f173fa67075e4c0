"""What this plug-in offers. Classes are named as text, so that they are imported only when they are used."""

from collections.abc import Mapping

import headrace as hr


@hr.hookimpl
def headrace_operators() -> Mapping[str, str]:
    return {"grok": "headrace_grok.operator:Grok"}


@hr.hookimpl
def headrace_codecs() -> Mapping[str, str]:
    return {
        "cef": "headrace_grok.pair_codecs:CefCodec",
        "grok": "headrace_grok.codec:GrokCodec",
        "leef": "headrace_grok.pair_codecs:LeefCodec",
        "logfmt": "headrace_grok.pair_codecs:LogfmtCodec",
    }
