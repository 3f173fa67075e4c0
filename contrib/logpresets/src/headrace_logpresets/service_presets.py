"""The presets of name servers, mail servers, databases and networks."""

from __future__ import annotations

from headrace_logpresets.pattern_preset import PatternPreset
from headrace_logpresets.times import Time

_EPOCH = Time("epoch")

PRESETS = (
    PatternPreset(
        name="dnsmasq",
        reads="dnsmasq with `log-queries`: queries, answers, what was forwarded",
        patterns=("%{DNSMASQ}",),
        library="DNSMASQ",
        syslog=True,
    ),
    PatternPreset(
        name="bind-query",
        reads="BIND's log of queries",
        patterns=("%{BIND9_QUERYLOG}",),
        library="BIND9_QUERYLOG",
        ecs={"serverip": "server.address"},
        times={"timestamp": Time(layout="%d-%b-%Y %H:%M:%S%.f")},
        local_times=True,
    ),
    PatternPreset(
        name="postfix",
        reads="Postfix: connections, deliveries, refusals, the queue",
        patterns=("%{POSTFIX}",),
        library="POSTFIX",
        ecs={"status": "postfix.status"},
        syslog=True,
    ),
    PatternPreset(
        name="postgresql",
        reads="PostgreSQL with its own `log_line_prefix`, or Debian's; a message of several lines is one record",
        patterns=("%{POSTGRESQL}",),
        library="POSTGRESQL",
        times={"timestamp": Time("postgresql")},
        local_times=True,
    ),
    PatternPreset(
        name="mysql-error",
        reads="the error log of MySQL 8",
        patterns=("%{MYSQL_ERROR}",),
        library="MYSQL_ERROR",
        times={"timestamp": Time("syslog")},
        local_times=True,
    ),
    PatternPreset(
        name="mysql-general",
        reads="the general log of MySQL 5.7 and later",
        patterns=(
            r"%{TIMESTAMP_ISO8601:timestamp}\s+%{NONNEGINT:thread:int} (?<command>[A-Z][A-Za-z ]*)(?:\t%{GREEDYDATA:argument})?$",
        ),
        library="MYSQL_ERROR",
        ecs={"command": "event.action", "argument": "mysql.general.argument"},
        times={"timestamp": Time("syslog")},
        local_times=True,
    ),
    PatternPreset(
        name="mysql-slow",
        reads="the slow log of MySQL 5.7 and later; a record is a whole entry of several lines",
        patterns=(
            r"(?:# Time: %{TIMESTAMP_ISO8601:timestamp}\s+)?"
            r"# User@Host: (?:%{USERNAME:user})?\[[^\]]*\] @ +(?:%{HOSTNAME:client} +)?\[(?:%{IP:clientip})?\]"
            r"(?: +Id: +%{NONNEGINT:thread:int})?\s+"
            r"(?:# Schema: %{DATA}\n)?"
            r"# Query_time: %{NUMBER:query_seconds:float} +Lock_time: %{NUMBER:lock_seconds:float} +"
            r"Rows_sent: %{INT:rows_sent:int} +Rows_examined: %{INT:rows_examined:int}[^\n]*\n"
            r"(?:use (?<database>[^;\n]+);\s+)?(?:SET timestamp=%{NUMBER:started};\s+)?%{GREEDYDATA:query}\z",
        ),
        library="MYSQL_ERROR",
        ecs={
            "user": "user.name",
            "client": "source.domain",
            "clientip": "source.ip",
            "query_seconds": "mysql.slowlog.query_seconds",
            "lock_seconds": "mysql.slowlog.lock_seconds",
            "rows_sent": "mysql.slowlog.rows_sent",
            "rows_examined": "mysql.slowlog.rows_examined",
            "database": "mysql.slowlog.schema",
            "started": "event.start",
            "query": "mysql.slowlog.query",
        },
        times={"timestamp": Time("syslog"), "started": _EPOCH},
        local_times=True,
    ),
    PatternPreset(
        name="aws-vpc-flow",
        reads="flow logs of AWS VPCs, version 2 with its default fields",
        patterns=("%{VPCFLOW}",),
        library="VPCFLOW",
        ecs={"start": "event.start", "end": "event.end", "action": "event.action"},
        times={"start": _EPOCH, "end": _EPOCH},
    ),
)
