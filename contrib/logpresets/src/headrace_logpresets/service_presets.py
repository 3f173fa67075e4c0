"""The presets of name servers, mail servers, databases and networks."""

from __future__ import annotations

from headrace_logpresets.pattern_preset import PatternPreset
from headrace_logpresets.times import Time

_EPOCH = Time("epoch")

_CLIENT = r"(?<client_name>[^\s\[\]]+)?\[(?:%{IP:client_ip}|[^\]]*)\](?::%{INT:client_port:int})?"
_BIND_BEGIN = (
    r"(?:(?<timestamp>%{BIND9_TIME}|%{TIMESTAMP_ISO8601}) )?(?:[a-z-]+: )?(?:(?<loglevel>%{LOGLEVEL}|debug [0-9]+): )?"
    r"client (?:@0x[0-9a-f]+ )?%{IP:clientip}#%{INT:clientport:int}(?:/key (?<key>\S+))?(?: \(.*?\))?: (?:view (?<view>\S+): )?"
)

_POSTFIX = PatternPreset(
    name="postfix",
    reads="Postfix: connections, logins, deliveries, refusals, the queue, TLS, postscreen",
    patterns=(
        r"%{ID}: to=<%{DATA:to}>,(?: orig_to=<%{DATA:orig_to}>,)? "
        r"relay=(?:none|(?<relay>[^\[,]+)(?:\[(?:%{IP:relay_ip}|[^\]]*)\](?::%{INT:relay_port:int})?)?),(?: conn_use=[0-9]+,)? "
        r"delay=%{NUMBER:delay:float}, delays=%{NOTSPACE:delays}, dsn=%{NOTSPACE:dsn}, "
        r"status=%{WORD:status}(?: \(%{GREEDYDATA:status_text}\))?$",
        r"%{ID}: from=<%{DATA:from}>, size=%{INT:size:int}, nrcpt=%{INT:nrcpt:int}(?: \(.*\))?$",
        r"%{ID}: from=<%{DATA:from}>, status=%{WORD:status}, (?<status_text>.*)$",
        r"%{ID}: client=%{CLIENT}(?:, [a-z_]+=\S+?)*?(?:, sasl_username=(?<sasl_username>.*?))?(?:, orig_queue_id=.*)?$",
        r"%{ID}: (?:resent-)?message-id=(?:<(?<message_id>.*)>|(?<message_id>.*))$",
        r"%{ID}: (?<event>removed|skipped, still being delivered)$",
        r"%{ID}: uid=%{INT:uid:int} from=<%{DATA:from}>(?: orig_id=\S+)?$",
        r"%{ID}: (?<event>sender (?:non-delivery|delivery status|delay) notification): (?<related_queue_id>\S+)$",
        r"%{ID}: host (?<relay>[^\[]+)\[%{IP:relay_ip}\](?::%{INT:relay_port:int})? (?:said|refused to talk to me): (?<status_text>.*)$",
        r"%{ID}: (?<event>lost connection|conversation) with (?<relay>[^\[]+)\[%{IP:relay_ip}\](?::%{INT:relay_port:int})? "
        r"(?<status_text>.*)$",
        r"(?:%{ID}|NOQUEUE): (?<event>[a-z_]+): (?<command>[A-Z-]+) from %{CLIENT}: (?:%{INT:reject_code:int} )?%{DATA:status_text};"
        r"(?: from=<%{DATA:from}>)?,?(?: to=<%{DATA:to}>)?,?(?: proto=\w+)?,?(?: sasl_username=<%{DATA:sasl_username}>)?"
        r"(?: helo=<%{DATA:helo}>)?$",
        r"(?:%{ID}: )?(?<event>connect|disconnect|SSL_accept error|(?:lost connection|timeout|too many errors|improper command pipelining)"
        r" after [A-Z-]+)(?: \([^)]*\))? from %{CLIENT}(?:(?:: | )(?<status_text>.*))?$",
        r"(?:%{ID}: )?warning: %{CLIENT}: SASL (?<sasl_method>\S+) (?<event>authentication failed|authentication aborted)"
        r"(?:: (?<status_text>.*?))?(?:, sasl_username=(?<sasl_username>.*))?$",
        r"warning: hostname (?<client_name>\S+) (?<status_text>(?:does not resolve to address|verification failed).*)$",
        r"(?<event>connect) to (?<relay>[^\[]+)\[(?:%{IP:relay_ip}|[^\]]*)\](?::%{INT:relay_port:int})?: (?<status_text>.*)$",
        r"(?:%{ID}: )?(?<tls_trust>Anonymous|Untrusted|Trusted|Verified) TLS (?<event>connection established) from %{CLIENT}: %{TLS}$",
        r"(?:%{ID}: )?(?<tls_trust>Anonymous|Untrusted|Trusted|Verified) TLS (?<event>connection established) to "
        r"(?<relay>[^\[]+)\[(?:%{IP:relay_ip}|[^\]]*)\](?::%{INT:relay_port:int})?: %{TLS}$",
        r"(?<event>CONNECT) from %{CLIENT} to \[[^\]]*\]:[0-9]+$",
        r"(?<event>DNSBL) (?<status_text>rank [0-9]+) for %{CLIENT}$",
        r"(?<event>HANGUP|PREGREET|BARE NEWLINE|NON-SMTP COMMAND|COMMAND PIPELINING|COMMAND [A-Z ]+ LIMIT)(?: [0-9]+)?(?: after \S+)? "
        r"from %{CLIENT}(?:(?:: | )(?<status_text>.*))?$",
        r"(?<event>PASS NEW|PASS OLD|DISCONNECT|ALLOWLISTED|WHITELISTED|DENYLISTED|BLACKLISTED|WHITELIST VETO|ALLOWLIST VETO) %{CLIENT}$",
    ),
    definitions={
        "ID": "%{POSTFIXID:queue_id}",
        # The long form has a time in digits and consonants, a z, and the number of the file.
        "POSTFIXID": "(?:[0-9A-F]{6,}|[0-9B-DF-HJ-NP-TV-Zb-df-hj-np-tv-y]{10}z[0-9B-DF-HJ-NP-TV-Zb-df-hj-np-tv-z]+)",
        "CLIENT": _CLIENT,
        "TLS": r"(?:TLSv%{NUMBER:tls_version}|SSLv\S+) with cipher (?<tls_cipher>\S+) .*",
    },
    library="POSTFIX",
    ecs={
        "status": "postfix.status",
        "event": "event.action",
        "client_port": "source.port",
        "uid": "postfix.uid",
        "size": "postfix.size",
        "related_queue_id": "postfix.related_queue_id",
        "command": "postfix.command",
        "sasl_method": "postfix.sasl_method",
        "tls_trust": "postfix.tls_trust",
        "tls_version": "tls.version",
        "tls_cipher": "tls.cipher",
    },
    # Addresses may be quoted, and then contain any character.
    once=("; from=<", "> to=<", ">, orig_to=<", ">, relay=", ">, size=", ">, status=", "> proto=", " helo=<"),
    syslog=True,
)

#: What a server writes into its logs of statements when it begins them.
_MYSQL_HEAD = r"^(?:\S+, Version: .* started with:|Tcp port: .*|Time +Id +Command +Argument) *$"

PRESETS = (
    PatternPreset(
        name="dnsmasq",
        reads="dnsmasq with `log-queries`, also `log-queries=extra`: queries, answers, forwarded queries",
        patterns=(
            r"%{EXTRA}(?<dns_action>query|auth|dnssec-query|dnssec-retry)\[%{NOTSPACE:dns_type}\] %{NOTSPACE:dns_question} "
            r"(?:from %{IP:clientip}|to %{IP:dns_server})(?:#[0-9]+)?(?: .*)?$",
            r"%{EXTRA}(?<dns_action>forwarded) %{NOTSPACE:dns_question} to %{IP:dns_server}(?:#[0-9]+)?(?: .*)?$",
            r"%{EXTRA}(?<dns_action>validation) (?:result|%{NOTSPACE:dns_question}) is (?<dns_result>.+)$",
            r"%{EXTRA}(?<dns_action>reply|cached|cached-stale|config|DHCP|auth|auth-known|special|gravity blocked|(?:exactly|regex) "
            r"(?:blacklisted|denied)|/.*?) %{NOTSPACE:dns_question} is (?:%{IP:dns_answer}|(?<dns_result>.+))$",
            r"(?<dns_action>possible DNS-rebind attack detected): %{NOTSPACE:dns_question}$",
        ),
        definitions={"EXTRA": r"(?:%{INT:query_number:int} (?:\* )?[^\s/]+/[0-9]+ )?"},
        library="DNSMASQ",
        ecs={"query_number": "dnsmasq.query_number", "dns_result": "dnsmasq.result"},
        # Requested names may contain blanks.
        once=(" from ", " is ", " to "),
        syslog=True,
    ),
    PatternPreset(
        name="dnsmasq-dhcp",
        reads="dnsmasq as a DHCP and DHCPv6 server, also with `log-dhcp`: leases, refusals, options, router advertisements",
        patterns=(
            # Only in this message, the text after the client is certainly its name.
            r"%{TRANSACTION}(?<event>DHCPACK)%{CLIENT} ?(?<client_hostname>\S+)?$",
            r"%{TRANSACTION}(?<event>DHCP[A-Z0-9-]+|BOOTP|PXE|RELAY-[A-Z]+)%{CLIENT} ?(?<message>.*)$",
            r"(?<event>RTR-SOLICIT)\((?<interface>[^)\s]+)\) ?(?<mac>%{MACS})?$",
            r"(?<event>RTR-ADVERT)\((?<interface>[^)\s]+)\) %{IP:address}(?: (?<message>.*))?$",
            r"(?<event>SLAAC-CONFIRM)\((?<interface>[^)\s]+)\) %{IP:address} (?<client_hostname>\S+)$",
            r"%{INT:transaction:int} (?<option>available DHCP (?:range|subnet)|vendor class|user class|client provides name|"
            r"client MAC address|tags|requested options|next server|server name|bootfile name|sent size|broadcast response|"
            r"Ignored|dhcp-[a-z-]+)(?:: *(?<message>.*))?$",
            r"(?<event>not giving name) (?<client_hostname>\S+) to the DHCP lease of %{IP:address} because (?<message>.*)$",
            r"(?<event>not using configured address|disabling DHCP static address) %{IP:address} (?<message>.*)$",
            r"(?<event>abandoning lease) to (?<mac>%{MACS}) of %{IP:address}$",
            r"(?<event>no address range available) for (?<message>DHCP(?:v6)? request .*)$",
        ),
        definitions={
            "TRANSACTION": "(?:%{INT:transaction:int} )?",
            # In DHCPv6, the unique identifier of the client (DUID).
            "MACS": "(?:[0-9a-f]{2}(?:[:-][0-9a-f]{2})+)",
            "CLIENT": r"\((?<interface>[^)\s]+)\) (?:%{IP:address} )?(?:<null>|(?<mac>%{MACS}))",
        },
        library="DNSMASQ",
        ecs={
            "transaction": "dnsmasq.dhcp.transaction",
            "event": "event.action",
            "interface": "observer.ingress.interface.name",
            "address": "client.ip",
            "mac": "client.mac",
            "client_hostname": "client.domain",
            "message": "event.reason",
            "option": "dnsmasq.dhcp.option",
        },
        syslog=True,
    ),
    PatternPreset(
        name="bind-query",
        reads="BIND's log of queries, with denied and failed queries",
        patterns=(
            _BIND_BEGIN + r"query: %{NOTSPACE:dns_question} %{WORD:dns_class} %{WORD:dns_type} %{NOTSPACE:dns_flags}"
            r"(?: \(%{IP:serverip}\))?(?: \[ECS (?<client_subnet>[^\]]+)\])?$",
            _BIND_BEGIN + r"query(?: \(cache\))? '(?<dns_question>[^']*)/%{WORD:dns_type}/%{WORD:dns_class}' "
            r"(?<event>denied)(?: \((?<reason>.*)\))?$",
            _BIND_BEGIN
            + r"query (?<event>failed) \((?<response_code>[^)]+)\) for (?<dns_question>\S+)/%{WORD:dns_class}"
            r"/%{WORD:dns_type} at \S+$",
        ),
        library="BIND9_QUERYLOG",
        ecs={
            "serverip": "server.address",
            "key": "bind.log.key",
            "view": "bind.log.view",
            "client_subnet": "bind.log.client_subnet",
            "event": "event.action",
            "reason": "event.reason",
            "response_code": "dns.response_code",
        },
        times={"timestamp": Time(layout="%d-%b-%Y %H:%M:%S%.f", also_iso=True)},
        local_times=True,
    ),
    _POSTFIX,
    PatternPreset(
        name="postgresql",
        reads="PostgreSQL with its own `log_line_prefix`, Debian's, or that of Amazon RDS; a message of several lines is one record",
        patterns=(
            r"%{POSTGRESQL_TIME:timestamp} \[%{POSINT:pid:int}\] (?:%{WHO} )?%{MESSAGE}",
            r"%{POSTGRESQL_TIME:timestamp}:(?:(?<client>[^\s()]+)\(%{INT:clientport:int}\)|\[local\])?:%{WHO}:\[%{POSINT:pid:int}\]:%{MESSAGE}",
        ),
        definitions={
            "WHO": r"(?:\[unknown\]|(?<user>[^\n]*?))?@(?:\[unknown\]|(?<database>[^@\n]*?))?",
            "MESSAGE": r"%{POSTGRESQL_LEVEL:loglevel}:  (?:duration: %{NUMBER:duration_ms:float} ms(?:  )?)?%{GREEDYDATA:message}",
        },
        ecs={"client": "source.address", "clientport": "source.port"},
        library="POSTGRESQL",
        # A client may send any name of a user and a database.
        once=(
            "(?:DEBUG[1-5]|INFO|NOTICE|WARNING|ERROR|LOG|FATAL|PANIC|DETAIL|HINT|QUERY|CONTEXT|LOCATION|STATEMENT|BACKTRACE):  ",
        ),
        times={"timestamp": Time("postgresql")},
        local_times=True,
    ),
    PatternPreset(
        name="mysql-error",
        reads="the error log of MySQL 5.7 and later, and of MariaDB",
        patterns=(
            # MariaDB writes hours below ten with a blank in front.
            r"(?<timestamp>%{TIMESTAMP_ISO8601}|%{YEAR}-%{MONTHNUM2}-%{MONTHDAY}  [0-9]:[0-9:]+) %{NONNEGINT:thread:int} "
            r"\[%{WORD:loglevel}\](?: \[%{MYSQL_CODE:errorcode}\])?(?: \[%{WORD:subsystem}\])? %{GREEDYDATA:message}",
        ),
        library="MYSQL_ERROR",
        times={"timestamp": Time(layout="%Y-%m-%d %H:%M:%S", also_iso=True)},
        local_times=True,
    ),
    PatternPreset(
        name="mysql-general",
        reads="the general log of MySQL 5.7 and later",
        patterns=(
            r"%{TIMESTAMP_ISO8601:timestamp}\s+%{NONNEGINT:thread:int} (?<command>[A-Z][A-Za-z ]*)(?:\t%{GREEDYDATA:argument})?$",
        ),
        no_record=_MYSQL_HEAD,
        library="MYSQL_ERROR",
        ecs={"command": "event.action", "argument": "mysql.general.argument"},
        times={"timestamp": Time("syslog")},
        local_times=True,
    ),
    PatternPreset(
        name="mysql-slow",
        reads="the slow log of MySQL 5.7 and later, and of MariaDB; a record is a whole entry of several lines",
        patterns=(
            r"(?:# Time: (?:%{TIMESTAMP_ISO8601:timestamp}|[0-9]{6} +[0-9:]+)\s+)?"
            r"# User@Host: (?<user>[^\[\n]*?)\[[^\[\]]*\] @ +(?:(?<client>[^\s\[]+) +)?\[(?:%{IP:clientip})?\]"
            r"(?: +Id: +%{NONNEGINT:thread:int})?\s+"
            r"(?:# Thread_id: %{NONNEGINT:thread:int} +Schema: (?<database>\S*) +[^\n]*\n|# Schema: (?<database>\S*) [^\n]*\n)?"
            r"# Query_time: %{NUMBER:query_seconds:float} +Lock_time: %{NUMBER:lock_seconds:float} +"
            r"Rows_sent: %{INT:rows_sent:int} +Rows_examined: %{INT:rows_examined:int}[^\n]*\n"
            r"(?:# (?:Rows_affected|Bytes_sent|Tmp_tables|Full_scan|Filesort|explain|QC_Hit|InnoDB_)[^\n]*\n)*"
            r"(?:use `?(?<database>[^;\n`]+)`?;\s+)?(?:SET timestamp=%{NUMBER:started};\s+)?%{GREEDYDATA:query}\z",
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
        no_record=_MYSQL_HEAD,
        times={"timestamp": Time("syslog"), "started": _EPOCH},
        local_times=True,
    ),
    PatternPreset(
        name="aws-vpc-flow",
        reads="flow logs of AWS VPCs, version 2 with its default fields",
        patterns=(
            r"%{SECOND_VERSION:version:int} %{NOTSPACE:account_id} %{NOTSPACE:interface_id} (?:-|%{IP:srcaddr}) (?:-|%{IP:dstaddr}) "
            r"(?:-|%{INT:srcport:int}) (?:-|%{INT:dstport:int}) (?:-|%{INT:protocol:int}) (?:-|%{INT:packets:int}) "
            r"(?:-|%{INT:bytes:int}) %{INT:start:int} %{INT:end:int} (?:-|%{WORD:action}) (?<log_status>OK|NODATA|SKIPDATA)$",
        ),
        # Lines of later versions have the fields that the flow log configures, in its order.
        definitions={"SECOND_VERSION": "2"},
        library="VPCFLOW",
        ecs={"start": "event.start", "end": "event.end", "action": "event.action"},
        times={"start": _EPOCH, "end": _EPOCH},
        no_record="^version account-id interface-id srcaddr dstaddr srcport dstport protocol packets bytes start end action "
        "log-status *$",
    ),
)
