"""What this plug-in offers. Classes are named as text, so that they are imported only when they are used."""

from collections.abc import Mapping

import headrace as hr

#: The names of presets, which are names of formats too. A test compares them with the presets themselves.
NAMES = (
    "apache-access",
    "apache-combined",
    "apache-error",
    "auditd",
    "aws-cloudtrail",
    "aws-vpc-flow",
    "bind-query",
    "dnsmasq",
    "dnsmasq-dhcp",
    "haproxy-http",
    "haproxy-tcp",
    "iis",
    "iptables",
    "kubernetes-audit",
    "mysql-error",
    "mysql-general",
    "mysql-slow",
    "nginx-access",
    "nginx-error",
    "postfix",
    "postgresql",
    "sshd",
    "sudo",
    "windows-security",
    "windows-sysmon",
)


@hr.hookimpl
def headrace_operators() -> Mapping[str, str]:
    return {"parse_log": "headrace_logpresets.operator:ParseLog"}


@hr.hookimpl
def headrace_codecs() -> Mapping[str, str]:
    return {name: f"headrace_logpresets.formats:{class_name(name)}" for name in NAMES}


@hr.hookimpl
def headrace_functions() -> Mapping[str, str]:
    names = ("geoip", "ip_in_network_file", "ip_in_networks", "mmdb_record", "parse_user_agent")
    return {name: f"headrace_logpresets.functions:{name}" for name in names}


def class_name(preset: str) -> str:
    """Return the name of the class of a preset's format: ``NginxAccessCodec`` for ``nginx-access``."""
    return "".join(word.capitalize() for word in preset.split("-")) + "Codec"
