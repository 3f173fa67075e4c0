"""Maps fields of Sigma rules to columns of presets, for the option ``sigma={"fields": …}`` of rules."""

from __future__ import annotations

from collections.abc import Mapping

from headrace_logpresets.json_preset import JsonPreset
from headrace_logpresets.presets import Choices, preset_of
from headrace_logpresets.windows_preset import WindowsPreset, plain_name

#: Fields of Windows events outside of their data.
_WINDOWS = {"EventID": "event_id", "Provider_Name": "provider", "Channel": "channel", "Computer": "computer"}
#: Fields of the log source ``webserver`` by the columns of access logs. The target of a request is one column, path and
#: query.
_WEB = {
    "cs-method": "verb", "cs-uri": "request", "c-uri": "request", "cs-uri-stem": "request", "cs-uri-query": "request",
    "c-uri-query": "request", "sc-status": "response", "sc-bytes": "bytes", "cs-user-agent": "agent", "c-useragent": "agent",
    "cs-referer": "referrer", "cs-referrer": "referrer", "c-ip": "clientip", "cs-username": "auth", "cs-host": "vhost",
    "cs-version": "httpversion",
}  # fmt: skip
_HAPROXY = {
    "cs-method": "http_verb", "cs-uri": "http_request", "c-uri": "http_request", "cs-uri-stem": "http_request",
    "cs-uri-query": "http_request", "sc-status": "http_status_code", "c-ip": "client_ip",
}  # fmt: skip
_IIS = {"cs-uri-stem": "request", "cs-uri-query": "query", "c-uri-query": "query", "s-ip": "server", "s-port": "port"}
_AUDITD = {
    "type": "record_type", "SYSCALL": "syscall", "name": "path", "nametype": "name_type", "key": "rule_key", "saddr": "socket_address",
    "success": "result", "res": "result", "exit": "exit_code", "acct": "account", "op": "operation", "ses": "session",
    "proctitle": "command", "cmd": "command",
}  # fmt: skip
_DNS = {"query": "dns_question", "record_type": "dns_type", "answer": "dns_answer", "src_ip": "clientip"}
_FIREWALL = {"src_ip": "src_ip", "dst_ip": "dst_ip", "src_port": "src_port", "dst_port": "dst_port"}
_FIELDS: Mapping[str, Mapping[str, str]] = {
    "apache-access": _WEB, "apache-combined": _WEB, "nginx-access": _WEB, "haproxy-http": _HAPROXY, "iis": {**_WEB, **_IIS},
    "auditd": _AUDITD, "dnsmasq": _DNS, "bind-query": _DNS, "iptables": _FIREWALL,
    "aws-vpc-flow": {"src_ip": "srcaddr", "dst_ip": "dstaddr", "src_port": "srcport", "dst_port": "dstport"},
}  # fmt: skip


def sigma_fields(preset: str) -> dict[str, str]:
    """Return the column of a preset for each field of Sigma rules, for ``rules(…, sigma={"fields":
    sigma_fields(preset)})``.

    The columns are those of ``fields="plain"``. Fields whose column has the same name are left out. Some rules of a log
    source may use further fields; such a rule is refused when the job is built.

    Raises:
        OptionError: there is no such preset.
    """
    found = preset_of(preset, plugin="logpresets", option="preset")
    if isinstance(found, WindowsPreset):
        return {**_WINDOWS, **{part.key: plain_name(part.key) for part in found.parts}}
    if isinstance(found, JsonPreset):
        return {key.path: name for name, key in found.keys.items() if key.path != name}
    columns = found.columns(Choices())
    return {name: column for name, column in _FIELDS.get(preset, {}).items() if column in columns and name != column}
