"""The presets of lines that patterns divide."""

from __future__ import annotations

from headrace_logpresets.audit_pairs import Pair
from headrace_logpresets.pattern_preset import PatternPreset
from headrace_logpresets.times import Time

_ACCESS_TIME = {"timestamp": Time(layout="%d/%b/%Y:%H:%M:%S %z")}
_HAPROXY_TIME = {"accept_date": Time(layout="%d/%b/%Y:%H:%M:%S%.f")}
_EPOCH = Time("epoch")

_WEB = (
    PatternPreset(
        name="nginx-access",
        reads="nginx's access log: the format `combined`, or `common`",
        patterns=("%{HTTPD_COMBINEDLOG}$", "%{HTTPD_COMMONLOG}$"),
        library="HTTPD_COMBINEDLOG",
        times=_ACCESS_TIME,
    ),
    PatternPreset(
        name="nginx-error",
        reads="nginx's error log",
        patterns=("%{NGINXERROR}",),
        library="NGINXERROR",
        times={"timestamp": Time(layout="%Y/%m/%d %H:%M:%S")},
        local_times=True,
    ),
    PatternPreset(
        name="apache-access",
        reads="Apache's access log in the Common Log Format",
        patterns=("%{HTTPD_COMMONLOG}$",),
        library="HTTPD_COMMONLOG",
        times=_ACCESS_TIME,
    ),
    PatternPreset(
        name="apache-combined",
        reads="Apache's access log in the format `combined`, also behind the name of a virtual host (`vhost_combined`)",
        patterns=("(?:%{HOSTPORT:vhost} )?%{HTTPD_COMBINEDLOG}$",),
        library="HTTPD_COMBINEDLOG",
        ecs={"vhost": "url.domain"},
        times=_ACCESS_TIME,
    ),
    PatternPreset(
        name="apache-error",
        reads="Apache's error log, of 2.4 and before",
        patterns=("%{HTTPD_ERRORLOG}",),
        library="HTTPD_ERRORLOG",
        times={"timestamp": Time(layout="%a %b %d %H:%M:%S%.f %Y")},
        local_times=True,
    ),
    PatternPreset(
        name="haproxy-http",
        reads="HAProxy with `option httplog`",
        patterns=("%{HAPROXYHTTPBASE}$",),
        library="HAPROXYHTTPBASE",
        times=_HAPROXY_TIME,
        syslog=True,
    ),
    PatternPreset(
        name="haproxy-tcp",
        reads="HAProxy with `option tcplog`",
        patterns=("%{HAPROXYTCPBASE}$",),
        library="HAPROXYTCPBASE",
        times=_HAPROXY_TIME,
        syslog=True,
    ),
    PatternPreset(
        name="iis",
        reads="IIS: the W3C format with its default fields",
        patterns=("%{IISLOG}$",),
        library="IISLOG",
        times={"timestamp": Time(layout="%Y-%m-%d %H:%M:%S", utc=True)},
    ),
)

_LINUX = (
    PatternPreset(
        name="sshd",
        reads="OpenSSH's server: logins, failures, sessions, ends of connections",
        patterns=(
            "(?<event>Accepted) %{NOTSPACE:method} for %{NOTSPACE:user} from %{SSHD_CLIENT}(?: %{WORD:protocol})?"
            "(?:: %{GREEDYDATA:fingerprint})?$",
            "(?<event>Failed) %{NOTSPACE:method} for (?:(?<unknown_user>invalid user) )?%{DATA:user} from %{SSHD_CLIENT}"
            "(?: %{WORD:protocol})?(?:: %{GREEDYDATA:fingerprint})?$",
            "(?<event>Invalid user) %{DATA:user} from %{IPORHOST:clientip}(?: port %{INT:clientport:int})?$",
            "(?<event>Connection closed|Connection reset) by (?:(?:authenticating|invalid) user %{DATA:user} )?"
            r"%{SSHD_CLIENT}(?: \[%{WORD:phase}\])?$",
            "(?<event>Disconnected) from (?:(?:authenticating |invalid )?user %{DATA:user} )?"
            r"%{SSHD_CLIENT}(?: \[%{WORD:phase}\])?$",
            r"(?<event>Received disconnect) from %{SSHD_CLIENT}:(?:%{INT:reason_code:int}: ?)?%{DATA:reason}(?: \[%{WORD:phase}\])?$",
            r"pam_unix\(sshd:session\): (?<event>session (?:opened|closed)) for user %{DATA:user}"
            r"(?:\(uid=[0-9]+\))?(?: by %{GREEDYDATA})?$",
        ),
        library="SSHD",
        ecs={
            "event": "event.action",
            "unknown_user": "ssh.unknown_user",
            "phase": "ssh.phase",
            "reason": "event.reason",
            "reason_code": "ssh.reason_code",
        },
        syslog=True,
    ),
    PatternPreset(
        name="sudo",
        reads="sudo: commands, and why they were refused",
        patterns=(" *%{SUDO}$",),
        library="SUDO",
        syslog=True,
    ),
    PatternPreset(
        name="iptables",
        reads="packets that netfilter logs (iptables, nftables, ufw)",
        patterns=(r"(?:\[ *[0-9.]+\] )?(?:%{DATA:log_prefix} *)?\b%{IPTABLES}",),
        library="IPTABLES",
        ecs={"log_prefix": "rule.name"},
        syslog=True,
    ),
    PatternPreset(
        name="auditd",
        reads="Linux's audit log: type, time, number, and the keys that most records have",
        patterns=(
            r"(?:node=%{NOTSPACE:node} )?type=%{WORD:record_type} "
            r"msg=audit\(%{NUMBER:timestamp}:%{NONNEGINT:sequence:int}\): ?%{GREEDYDATA:data}$",
        ),
        library="AUDIT",
        ecs={
            "node": "host.hostname",
            "record_type": "auditd.log.record_type",
            "sequence": "auditd.log.sequence",
            "data": "auditd.log.data",
        },
        times={"timestamp": _EPOCH},
        pairs={
            "pid": Pair("pid", "process.pid", "int64"),
            "ppid": Pair("ppid", "process.parent.pid", "int64"),
            "uid": Pair("uid", "user.id"),
            "auid": Pair("auid", "user.audit.id"),
            "euid": Pair("euid", "user.effective.id"),
            "session": Pair("ses", "auditd.session"),
            "syscall": Pair("syscall", "auditd.data.syscall"),
            "arch": Pair("arch", "auditd.data.arch"),
            "result": Pair("success|res", "auditd.result"),
            "exit_code": Pair("exit", "process.exit_code", "int64"),
            "comm": Pair("comm", "process.name", encoded=True),
            "exe": Pair("exe", "process.executable", encoded=True),
            "cwd": Pair("cwd", "process.working_directory", encoded=True),
            "path": Pair("name", "file.path", encoded=True),
            "tty": Pair("tty|terminal", "process.tty"),
            "operation": Pair("op", "event.action"),
            "account": Pair("acct", "user.name", encoded=True),
            "client_host": Pair("hostname", "source.domain"),
            "client_address": Pair("addr", "source.ip"),
            "rule_key": Pair("key", "rule.name", encoded=True),
            "command": Pair("cmd|proctitle", "process.command_line", encoded=True),
        },
        pairs_of="data",
    ),
)

_SERVICES = (
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

PRESETS = (*_WEB, *_LINUX, *_SERVICES)
