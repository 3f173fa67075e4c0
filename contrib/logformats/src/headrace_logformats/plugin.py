"""What this plug-in offers. Classes are named as text, so that they are imported only when they are used."""

from collections.abc import Mapping

import headrace as hr


@hr.hookimpl
def headrace_operators() -> Mapping[str, str]:
    return {
        "kubernetes_path": "headrace_logformats.kubernetes_path:KubernetesPath",
        "parse_w3c": "headrace_logformats.w3c:ParseW3c",
    }


@hr.hookimpl
def headrace_codecs() -> Mapping[str, str]:
    return {
        "cri": "headrace_logformats.containers:CriCodec",
        "docker-json": "headrace_logformats.containers:DockerJsonCodec",
        "journal-export": "headrace_logformats.journal:JournalExportCodec",
        "journal-json": "headrace_logformats.journal:JournalJsonCodec",
        "windows-event-xml": "headrace_logformats.windows_events:WindowsEventXmlCodec",
    }
