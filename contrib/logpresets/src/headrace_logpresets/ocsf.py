"""Names of columns by the Open Cybersecurity Schema Framework (OCSF), derived from names of the Elastic Common Schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import headrace as hr
import polars as pl

from headrace_logpresets.presets import Choices, Preset

#: Attributes of OCSF 1.4, by the field of the Elastic Common Schema with the same meaning. Other fields are in
#: ``unmapped``.
_ATTRIBUTES: Mapping[str, str] = {
    "@timestamp": "time", "message": "message", "log.level": "severity", "event.action": "activity_name",
    "event.start": "start_time", "event.end": "end_time", "event.code": "metadata.event_code", "event.id": "metadata.uid",
    "event.reason": "status_detail", "event.provider": "metadata.log_provider", "error.code": "status_code",
    "error.message": "status_detail", "rule.name": "firewall_rule.name",
    "host.hostname": "device.hostname", "host.name": "device.hostname", "service.name": "service.name",
    "source.address": "src_endpoint.ip", "source.ip": "src_endpoint.ip", "source.port": "src_endpoint.port",
    "source.domain": "src_endpoint.hostname", "source.bytes": "traffic.bytes_in", "source.packets": "traffic.packets_in",
    "client.ip": "src_endpoint.ip", "client.port": "src_endpoint.port",
    "destination.address": "dst_endpoint.ip", "destination.ip": "dst_endpoint.ip", "destination.port": "dst_endpoint.port",
    "destination.domain": "dst_endpoint.hostname", "server.address": "dst_endpoint.ip", "server.ip": "dst_endpoint.ip",
    "server.port": "dst_endpoint.port",
    "network.transport": "connection_info.protocol_name", "network.iana_number": "connection_info.protocol_num",
    "user.name": "actor.user.name", "user.id": "actor.user.uid", "user.domain": "actor.user.domain",
    "user.target.name": "user.name", "user.target.id": "user.uid", "user.target.domain": "user.domain",
    "process.pid": "process.pid", "process.name": "process.name", "process.executable": "process.file.path",
    "process.command_line": "process.cmd_line", "process.working_directory": "process.working_directory",
    "process.entity_id": "process.uid", "process.thread.id": "process.tid", "process.exit_code": "exit_code",
    "process.parent.pid": "process.parent_process.pid", "process.parent.executable": "process.parent_process.file.path",
    "process.parent.command_line": "process.parent_process.cmd_line", "process.parent.entity_id": "process.parent_process.uid",
    "url.original": "http_request.url.url_string", "url.query": "http_request.url.query_string", "url.domain": "http_request.url.hostname",
    "http.request.method": "http_request.http_method", "http.request.referrer": "http_request.referrer",
    "http.response.status_code": "http_response.code", "http.response.body.bytes": "http_response.length",
    "http.version": "http_request.version", "user_agent.original": "http_request.user_agent",
    "dns.question.name": "query.hostname", "dns.question.type": "query.type", "dns.question.class": "query.class",
    "file.path": "file.path", "file.name": "file.name", "dll.path": "module.file.path", "registry.path": "reg_key.path",
    "email.from.address": "email.from", "email.to.address": "email.to", "email.message_id": "email.message_uid",
    "email.size": "email.size", "cloud.account.id": "cloud.account.uid", "cloud.region": "cloud.region",
}  # fmt: skip
_OTHERS = "unmapped"
#: The classes of the events of each log. Each attribute of a preset belongs to one of its classes, and has the type of
#: that class.
CLASSES: Mapping[str, tuple[str, ...]] = {
    "apache-access": ("http_activity",), "apache-combined": ("http_activity",), "apache-error": ("http_activity",),
    "auditd": ("process_activity", "file_activity", "authentication"), "aws-cloudtrail": ("api_activity",),
    "aws-vpc-flow": ("network_activity",), "bind-query": ("dns_activity",), "dnsmasq": ("dns_activity",),
    "dnsmasq-dhcp": ("dhcp_activity",), "haproxy-http": ("http_activity",), "haproxy-tcp": ("network_activity",),
    "iis": ("http_activity",), "iptables": ("network_activity",), "kubernetes-audit": ("api_activity",),
    "mysql-error": ("base_event",), "mysql-general": ("datastore_activity",), "mysql-slow": ("datastore_activity",),
    "nginx-access": ("http_activity",), "nginx-error": ("http_activity",), "postfix": ("email_activity",),
    "postgresql": ("datastore_activity",), "sshd": ("authentication",), "sudo": ("process_activity",),
    "windows-security": ("authentication", "process_activity", "account_change"),
    "windows-sysmon": ("process_activity", "network_activity", "file_activity", "dns_activity", "module_activity",
                       "win/registry_key_activity"),
}  # fmt: skip
#: Attributes that only some classes have, by their prefix.
_ONLY_IN: Mapping[str, tuple[str, ...]] = {
    "process.": ("process_activity",),
}
#: Attributes that are texts in OCSF; numbers become texts.
_TEXTS = ("metadata.event_code", "status_code")
#: Attributes that are arrays in OCSF; a value becomes an array with one element.
_ARRAYS = ("email.to",)


def ocsf_names(preset: str, fields: Mapping[str, pl.DataType]) -> dict[str, str]:
    """Return the OCSF name of each field of the Elastic Common Schema in a preset.

    If two fields have the same attribute, the first one gets it.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name, kind in fields.items():
        attribute = _ATTRIBUTES.get(name, f"{_OTHERS}.{name}")
        elsewhere = any(
            attribute.startswith(begin) and not set(classes) & set(CLASSES[preset])
            for begin, classes in _ONLY_IN.items()
        )
        # Columns that are arrays have none of these attributes.
        if attribute in taken or elsewhere or isinstance(kind, pl.List):
            attribute = f"{_OTHERS}.{name}"
        taken.add(attribute)
        found[name] = attribute
    return found


@dataclass(frozen=True, kw_only=True)
class OcsfNames(Preset):
    """A preset whose columns have OCSF names. It uses the inner preset with names of the Elastic Common Schema."""

    inner: Preset

    @classmethod
    def of(cls, preset: Preset) -> OcsfNames:
        """Return a preset with these names."""
        return cls(
            name=preset.name, reads=preset.reads, syslog=preset.syslog, local_times=preset.local_times, inner=preset
        )

    def columns(self, choices: Choices) -> hr.Schema:
        """Return all columns."""
        columns = self.inner.columns(choices)
        names = ocsf_names(self.name, columns)
        return hr.Schema(
            {names[name]: _type_of(names[name], kind) for name, kind in columns.items()},
            json_columns=[names[name] for name in columns.json_columns],
        )

    def decoder(self, choices: Choices, wanted: Mapping[str, pl.DataType]) -> hr.Decoder:
        """Return a decoder to some of the columns."""
        columns = self.inner.columns(choices)
        field_of = {attribute: name for name, attribute in ocsf_names(self.name, columns).items()}
        inner = self.inner.decoder(choices, {field_of[attribute]: columns[field_of[attribute]] for attribute in wanted})
        return _Renaming(inner, list(wanted))


def _type_of(attribute: str, kind: pl.DataType) -> pl.DataType:
    if attribute in _ARRAYS:
        return pl.List(pl.String())
    return pl.String() if attribute in _TEXTS else kind


class _Renaming(hr.Decoder):
    def __init__(self, inner: hr.Decoder, names: list[str]) -> None:
        self._inner = inner
        self._names = names

    def decode(self, bodies: hr.Bodies) -> hr.Decoded:
        found = self._inner.decode(bodies)
        frame = found.frame
        renamed = frame.rename(dict(zip(frame.columns, self._names, strict=True))) if self._names else frame
        made = [pl.col(name).cast(pl.String) for name in self._names if name in _TEXTS]
        for name in self._names:
            if name in _ARRAYS:
                made.append(pl.when(pl.col(name).is_not_null()).then(pl.concat_list(name)).alias(name))
        renamed = renamed.with_columns(made) if made else renamed
        return hr.Decoded(renamed, found.rows, found.bad)
