"""The presets of programs that log on every Linux: sshd, sudo, the packet filter, auditd."""

from __future__ import annotations

from headrace_logpresets.audit_pairs import Pair
from headrace_logpresets.pattern_preset import PatternPreset
from headrace_logpresets.times import Time

_SSHD_ECS = {
    "event": "event.action",
    "unknown_user": "ssh.unknown_user",
    "phase": "ssh.phase",
    "reason": "event.reason",
    "repeats": "ssh.repeats",
    "reason_code": "ssh.reason_code",
    "client_host": "source.domain",
    "server_ip": "destination.ip",
    "server_port": "destination.port",
}
_SSHD = PatternPreset(
    name="sshd",
    reads="OpenSSH's server: logins, failures, sessions, refused and ended connections",
    patterns=(
        "(?<event>Accepted) %{NOTSPACE:method} for %{DATA:user} from %{CLIENT}(?: %{WORD:protocol})?(?:: %{KEY:fingerprint})?$",
        "(?<event>Failed|Postponed) %{NOTSPACE:method} for %{UNKNOWN}%{DATA:user} from %{CLIENT}"
        r"(?: %{WORD:protocol})?(?:: %{KEY:fingerprint})?%{PHASE}$",
        # With $RepeatedMsgReduction, rsyslog writes the number of equal messages instead of the messages.
        r"message repeated %{POSINT:repeats:int} times: \[ (?<event>Failed) %{NOTSPACE:method} for %{UNKNOWN}%{DATA:user} from %{CLIENT}"
        r"(?: %{WORD:protocol})?\]$",
        "(?<event>Invalid user) %{DATA:user} from %{ADDRESS}(?: port %{INT:clientport:int})?$",
        "(?<event>Connection closed|Connection reset) by (?:(?:authenticating user|(?<unknown_user>invalid user)) %{DATA:user} )?"
        r"%{CLIENT}%{PHASE}$",
        "(?<event>Disconnected) from (?:(?:authenticating user|(?<unknown_user>invalid user)|user) %{DATA:user} )?%{CLIENT}%{PHASE}$",
        r"(?<event>Disconnecting) (?:(?:authenticating user|(?<unknown_user>invalid user)) (?<user>.*) )?%{CLIENT}: "
        r"(?<reason>Change of username or service not allowed: .*?|[A-Za-z0-9 ,.-]+?)%{PHASE}$",
        r"(?<event>Received disconnect) from %{ADDRESS}(?: port %{INT:clientport:int})?:"
        r" ?(?:%{INT:reason_code:int}: ?)?%{DATA:reason}%{PHASE}$",
        r"(?:error: )?(?<event>maximum authentication attempts exceeded) for %{UNKNOWN}%{DATA:user} from %{CLIENT}"
        r"(?: %{WORD:protocol})?%{PHASE}$",
        r"(?<event>Connection) from %{CLIENT} on %{IP:server_ip} port %{INT:server_port:int}(?: rdomain .*)?$",
        r"User (?<user>\S+)(?: from %{ADDRESS})? (?<event>not allowed) because (?<reason>account is locked|(?:not )?listed in \w+"
        r"|shell \S+ (?:does not exist|is not executable)|not in any group|(?:a group is|none of user's groups are) listed in \w+)$",
        r"pam_[a-z0-9_]+\(sshd:session\): (?<event>session (?:opened|closed)) for user %{DATA:user}"
        r"(?:\(uid=[0-9]+\))?(?: by %{GREEDYDATA})?$",
        r"(?:pam_[a-z0-9_]+\(sshd:auth\): (?<event>authentication failure)|PAM [0-9]+ more (?<event>authentication failures?)); .*?"
        r"rhost=(?:%{IP:clientip}|%{NOTSPACE:client_host})?(?: +user=(?<user>.*))?$",
        r"(?:fatal: )?(?<event>Timeout before authentication) for (?:connection from )?%{ADDRESS}(?: port %{INT:clientport:int})?"
        r"(?: to %{IP:server_ip}, pid = [0-9]+)?$",
        r"(?<event>Did not receive identification string|Unable to negotiate|banner exchange|ssh_dispatch_run_fatal)(?:: Connection)?"
        r" (?:from|with) (?:(?:authenticating user|(?<unknown_user>invalid user)) %{DATA:user} )?%{CLIENT}"
        r"(?:: (?<reason>.*?))?%{PHASE}$",
        r"(?:error: )?(?<event>Bad protocol version identification) (?<reason>'.*') from %{CLIENT}$",
        r"(?:error: )?(?<event>drop connection) #[0-9]+ from \[%{IP:clientip}\]:%{INT:clientport:int} on "
        r"\[%{IP:server_ip}\]:%{INT:server_port:int} (?<reason>.*)$",
        r"(?<event>Starting session|Close session): (?:(?<reason>.*) for|user) (?<user>\S+) from %{CLIENT} id [0-9]+$",
        r"(?<event>subsystem request) for (?<reason>\S+) by user (?<user>\S+)$",
        r"(?<event>reverse mapping checking getaddrinfo) for %{NOTSPACE:client_host} \[%{IP:clientip}\] (?<reason>failed.*)$",
    ),
    definitions={
        # Texts that sshd writes for unknown values.
        "ADDRESS": "(?:UNKNOWN|%{IP:clientip}|%{NOTSPACE:client_host})",
        "CLIENT": "%{ADDRESS} port %{INT:clientport:int}",
        "UNKNOWN": "(?:(?<unknown_user>invalid user|illegal user) )?",
        "PHASE": r"(?: \[%{WORD:phase}\])?",
        # The pattern is strict, because a user's name may contain text that looks like an address and a key.
        "KEY": r"(?:\S+ (?:SHA[0-9]+:\S+|MD5:\S+|[0-9a-f]{2}(?::[0-9a-f]{2})+)|\S+)"
        r"(?: ID (?:\S+|[^:]*) \(serial [0-9]+\) CA \S+ \S+)?"
        r'(?:,? client user "[^"]*", client host "[^"]*")?',
    },
    library="SSHD",
    ecs=_SSHD_ECS,
    syslog=True,
)

PRESETS = (
    _SSHD,
    PatternPreset(
        name="sudo",
        reads="sudo: commands, reasons of refused commands, sessions of PAM",
        patterns=(
            r" *%{DATA:sudo_user} : (?:(?<sudo_error>[^=;]+?) ; )?%{PART}*(?:TTY=%{NOTSPACE:tty} ; )?%{PART}*"
            r"(?:PWD=%{DATA:pwd} ; )?USER=%{DATA:target_user} ; %{PART}*COMMAND=%{GREEDYDATA:command}$",
            r" *%{DATA:sudo_user} : \((?<continued>command continued)\) %{GREEDYDATA:command}$",
            r" *%{DATA:sudo_user} : (?<sudo_error>unable to .*|problem with .*)$",
            r"pam_[a-z0-9_]+\(sudo(?:-i)?:session\): (?<event>session opened|session closed) for user (?<target_user>[^\s(]+)%{UID}?"
            r"(?: by (?<sudo_user>[^\s(]+)?%{UID}?)?$",
            r"pam_[a-z0-9_]+\(sudo(?:-i)?:auth\): (?<event>authentication failure); .*?tty=%{NOTSPACE:tty} ruser=(?<sudo_user>\S*) "
            r".*$",
            r"pam_[a-z0-9_]+\(sudo(?:-i)?:auth\): (?<sudo_error>conversation failed|auth could not identify password for .*)$",
        ),
        definitions={
            # Parts that are not columns.
            "PART": r"(?:(?:HOST|CHROOT|GROUP|TSID|ENV)=.*? ; )",
            "UID": r"(?:\(uid=[0-9]+\))",
        },
        library="SUDO",
        # sudo does not escape names of directories.
        once=(" ; USER=",),
        ecs={"tty": "sudo.tty", "continued": "sudo.continued", "event": "event.action"},
        syslog=True,
    ),
    PatternPreset(
        name="iptables",
        reads="packets that netfilter logs (iptables, nftables, ufw)",
        patterns=(
            r"(?:\[ *[0-9.]+\] )?(?:%{DATA:log_prefix} *)?\bIN=(?:%{NOTSPACE:in_interface})? OUT=(?:%{NOTSPACE:out_interface})? "
            r"(?:PHYSIN=\S* )?(?:PHYSOUT=\S* )?(?:MAC=(?:%{NOTSPACE:mac})? |MACSRC=%{NOTSPACE:mac} MACDST=\S* (?:MACPROTO=\S* )?)?"
            r"SRC=%{IP:src_ip} DST=%{IP:dst_ip} LEN=%{INT:length:int} (?:TOS=\S+ PREC=\S+ |TC=\S+ )?"
            r"(?:TTL|HOPLIMIT)=%{INT:ttl:int} (?:ID=%{INT:id:int} )?(?:FLOWLBL=\S+ )?"
            r"(?:(?:CE|DF|MF|FRAG:\S+|FRAG OFF=\S+|OPT \([0-9A-F]*\)) )*PROTO=%{NOTSPACE:transport}"
            r"(?: SPT=%{INT:src_port:int} DPT=%{INT:dst_port:int}| TYPE=%{INT:icmp_type:int} CODE=%{INT:icmp_code:int})?"
            r"(?: .*?\bUID=%{INT:uid:int})?",
        ),
        library="IPTABLES",
        ecs={
            "log_prefix": "rule.name",
            "icmp_type": "iptables.icmp.type",
            "icmp_code": "iptables.icmp.code",
            "uid": "iptables.uid",
        },
        syslog=True,
    ),
    PatternPreset(
        name="auditd",
        reads="Linux's audit log: type, time, number, and the keys that most records have",
        patterns=(
            r"(?:node=%{NOTSPACE:node} )?type=(?<record_type>[A-Z0-9_]+(?:\[[0-9]+\])?) "
            r"msg=audit\(%{NUMBER:timestamp}:%{NONNEGINT:sequence:int}\) ?: *%{GREEDYDATA:data}$",
        ),
        library="AUDIT",
        ecs={
            "node": "host.hostname",
            "record_type": "auditd.log.record_type",
            "sequence": "auditd.log.sequence",
            "data": "auditd.log.data",
        },
        times={"timestamp": Time("epoch")},
        pairs={
            "pid": Pair("pid", "process.pid", "int64"),
            "ppid": Pair("ppid", "process.parent.pid", "int64"),
            "uid": Pair("uid", "user.id"),
            "auid": Pair("auid", "auditd.data.auid"),
            "euid": Pair("euid", "user.effective.id"),
            "session": Pair("ses", "auditd.session"),
            "syscall": Pair("syscall", "auditd.data.syscall"),
            "arch": Pair("arch", "auditd.data.arch"),
            "result": Pair("success|res", "auditd.result"),
            "exit_code": Pair("exit", "auditd.data.exit", "int64"),
            "comm": Pair("comm", "process.name", encoded=True),
            "exe": Pair("exe", "process.executable", encoded=True),
            "cwd": Pair("cwd", "process.working_directory", encoded=True),
            "path": Pair("name", "file.path", encoded=True),
            "tty": Pair("tty|terminal", "auditd.data.tty"),
            "operation": Pair("op|operation", "event.action"),
            "account": Pair("acct", "user.name", encoded=True),
            "client_host": Pair("hostname", "source.domain"),
            "client_address": Pair("addr", "source.ip"),
            "rule_key": Pair("key", "rule.name", encoded=True),
            "command": Pair("cmd|proctitle", "process.command_line", encoded=True),
            "name_type": Pair("nametype", "auditd.data.nametype"),
            "socket_address": Pair("saddr", "auditd.data.saddr"),
            "unit": Pair("unit", "service.name"),
            **{
                f"a{number}": Pair(f"a{number}", f"auditd.data.a{number}", encoded=True, encoded_behind="argc=")
                for number in range(8)
            },
        },
        pairs_of="data",
    ),
)
