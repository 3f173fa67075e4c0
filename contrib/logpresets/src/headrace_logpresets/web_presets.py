"""The presets of web servers and of HAProxy."""

from __future__ import annotations

from headrace_logpresets.pattern_preset import PatternPreset
from headrace_logpresets.times import Time

_ACCESS_TIME = {"timestamp": Time(layout="%d/%b/%Y:%H:%M:%S %z")}
_HAPROXY_TIME = {"accept_date": Time(layout="%d/%b/%Y:%H:%M:%S%.f")}

# Requests as Apache and nginx write them. The name of a user is any text that a client has sent, also with blanks.
_REQUESTS = {
    "REMOTE": r"(?:%{IP}|[0-9A-Za-z_][0-9A-Za-z_.-]*|unix:)",
    "METHOD": r"[!#$%&'*+.^_`|~0-9A-Za-z-]+",
    "REQUEST": r"(?:-|%{METHOD:verb} %{NOTSPACE:request}(?: HTTP/%{NUMBER:httpversion})?|%{DATA:rawrequest})",
    "REQUESTLINE": r'%{REMOTE:clientip} (?:-|(?<ident>[^\s"]+)) (?:-|""|(?<auth>(?:[^\s"-]|-[^\s"])[^"]*?)) '
    r'\[%{HTTPDATE:timestamp}\] "%{REQUEST}" (?:-|%{INT:response:int}) (?:-|%{INT:bytes:int})',
    "SERVERS": r"(?:[^,]*)",
    "HOSTANDPORT": r'(?:\[[0-9A-Fa-f:.]+\]|[^\s"]*?)',
}
_ACCEPTED = {
    "ACCEPTED": r"(?:(?:unix|-):(?:-|[0-9]+)|%{IP:client_ip}:%{INT:client_port:int}) \[%{HAPROXYDATE:accept_date}\] "
    r"%{NOTSPACE:frontend_name} %{NOTSPACE:backend_name}/(?:<NOSRV>|%{NOTSPACE:server_name})",
    "PEER": r"(?:unix:[0-9]+|%{IP:client_ip}:%{INT:client_port:int})",
}
#: Lines beside requests and sessions: connections that failed before one, connections without a format of the log,
#: checks of servers.
_HAPROXY_OTHERS = (
    r"%{PEER} \[%{HAPROXYDATE:accept_date}\] (?<frontend_name>[^\s/]+)/(?<bind_name>[^\s:]+): (?<error>.*)$",
    r"Connect from (?:unix:[0-9]+|%{IP:client_ip}:%{INT:client_port:int} to %{IP:bind_ip}:%{INT:bind_port:int}) "
    r"\((?<frontend_name>[^\s/]+)/(?<mode>HTTP|TCP)\)$",
    r"(?:Backup )?Server (?<backend_name>[^\s/]+)/(?<server_name>\S+) is (?<server_state>UP|DOWN)\b(?:[^,.]*)"
    r"(?:, reason: (?<error>.*?))?(?:, check duration: [0-9]+ms)?\. [0-9]+ active and [0-9]+ backup servers .*$",
    r"Health check for (?:backup )?server (?<backend_name>[^\s/]+)/(?<server_name>\S+) (?:failed|succeeded), reason: (?<error>.*?)"
    r"(?:, check duration: [0-9]+ms)?, status: [0-9]+/[0-9]+ (?<server_state>UP|DOWN)\.$",
)
_HAPROXY_OTHERS_ECS = {
    "bind_name": "haproxy.bind_name",
    "bind_ip": "destination.ip",
    "bind_port": "destination.port",
    "error": "error.message",
    "mode": "haproxy.mode",
    "server_state": "haproxy.server_state",
}

PRESETS = (
    PatternPreset(
        name="nginx-access",
        reads="nginx's access log: the formats `combined`, `common`, and `main` of nginx's own packages and images",
        patterns=(
            r'%{REQUESTLINE} "(?:-|%{HTTPQUOTED:referrer})" "(?:-|%{HTTPQUOTED:agent})"(?: "(?:-|%{HTTPQUOTED:forwarded_for})")?$',
            "%{REQUESTLINE}$",
        ),
        definitions=_REQUESTS,
        library="HTTPD_COMBINEDLOG",
        ecs={"rawrequest": "nginx.access.raw_request", "forwarded_for": "nginx.access.forwarded_for"},
        times=_ACCESS_TIME,
    ),
    PatternPreset(
        name="nginx-error",
        reads="nginx's error log",
        patterns=(
            r"%{NGINXERROR_DATE:timestamp} \[%{LOGLEVEL:severity}\] %{POSINT:pid:int}#%{NONNEGINT:threadid:int}: "
            r"(?:\*%{NONNEGINT:connection:int} )?%{DATA:message}(?:, client: %{REMOTE:clientip})?"
            r'(?:, server: %{SERVERS:server})?(?:, login: "%{DATA:login}")?(?:, request: "%{REQUEST}")?'
            r'(?:, subrequest: "%{DATA:subrequest}")?(?:, upstream: "%{DATA:upstream}")?'
            r'(?:, host: "%{HOSTANDPORT:host}(?::%{INT:hostport:int})?")?(?:, referrer: "%{DATA:referrer}")?'
            r"(?:, bytes from/to client:%{INT:client_bytes_received:int}/%{INT:client_bytes_sent:int}"
            r", bytes from/to upstream:%{INT:upstream_bytes_received:int}/%{INT:upstream_bytes_sent:int})?$",
        ),
        definitions=_REQUESTS,
        library="NGINXERROR",
        ecs={
            "login": "user.name",
            "rawrequest": "nginx.error.raw_request",
            "subrequest": "nginx.error.subrequest",
            "hostport": "url.port",
            "client_bytes_received": "source.bytes",
            "client_bytes_sent": "destination.bytes",
            "upstream_bytes_received": "nginx.error.upstream_bytes_received",
            "upstream_bytes_sent": "nginx.error.upstream_bytes_sent",
        },
        # The message may contain the name of a file, and nginx escapes nothing in the request.
        once=(
            ", client: ",
            ", server: ",
            ', login: "',
            ', request: "',
            ', subrequest: "',
            ', upstream: "',
            ', host: "',
            ', referrer: "',
        ),
        times={"timestamp": Time(layout="%Y/%m/%d %H:%M:%S")},
        local_times=True,
    ),
    PatternPreset(
        name="apache-access",
        reads="Apache's access log in the Common Log Format",
        patterns=("%{REQUESTLINE}$",),
        definitions=_REQUESTS,
        library="HTTPD_COMMONLOG",
        ecs={"rawrequest": "apache.access.raw_request"},
        times=_ACCESS_TIME,
    ),
    PatternPreset(
        name="apache-combined",
        reads="Apache's access log in the format `combined`, also with the name of a virtual host in front (`vhost_combined`)",
        patterns=(
            r"(?:(?<vhost>\[[0-9A-Fa-f:.]+\]|[^\s:]+):%{INT:vhostport:int} )?%{REQUESTLINE} "
            r'"(?:-|%{HTTPQUOTED:referrer})" "(?:-|%{HTTPQUOTED:agent})"$',
        ),
        definitions=_REQUESTS,
        library="HTTPD_COMBINEDLOG",
        ecs={"rawrequest": "apache.access.raw_request", "vhost": "url.domain", "vhostport": "url.port"},
        times=_ACCESS_TIME,
    ),
    PatternPreset(
        name="apache-error",
        reads="Apache's error log, of version 2.4 and older",
        patterns=(
            r"\[%{HTTPDERROR_DATE:timestamp}\] \[(?:%{WORD:module})?:%{LEVEL:loglevel}\] "
            r"\[pid %{POSINT:pid:int}(?::tid %{NUMBER:tid:int})?\] (?:%{SOURCE:source}: )?"
            r"(?:\((?<proxy_errorcode>(?:EAI )?-?[0-9]+)\)%{DATA:proxy_message}: )?"
            r"(?:\[(?:client|remote) %{IPORHOST:clientip}(?::%{POSINT:clientport:int})?\] )?"
            r"(?:%{CODE:errorcode}: )?%{DATA:message}(?:, referer: (?<referrer>.*))?$",
            r"\[%{HTTPDERROR_DATE:timestamp}\] \[%{LEVEL:loglevel}\] (?:\[client %{IPORHOST:clientip}\] )?"
            r"%{DATA:message}(?:, referer: (?<referrer>.*))?$",
        ),
        definitions={
            "LEVEL": "(?:emerg|alert|crit|error|warn|notice|info|debug|trace[1-8])",
            "SOURCE": r"[\w./-]+\.(?:c|cc|cpp|h)\([0-9]+\)",
            "CODE": r"AH[0-9]+",
        },
        library="HTTPD_ERRORLOG",
        ecs={"source": "log.origin.file.name", "referrer": "http.request.referrer"},
        once=(", referer: ",),
        times={"timestamp": Time(layout="%a %b %d %H:%M:%S%.f %Y")},
        local_times=True,
    ),
    PatternPreset(
        name="haproxy-http",
        reads="HAProxy with `option httplog` or `option httpslog`; failed connections, checks of servers",
        patterns=(
            r"%{ACCEPTED} %{INT:time_request:int}/%{INT:time_queue:int}/%{INT:time_backend_connect:int}/"
            r"%{INT:time_backend_response:int}/\+?%{INT:time_duration:int} %{INT:http_status_code:int} "
            r"\+?%{INT:bytes_read:int} (?:-|%{NOTSPACE:captured_request_cookie}) (?:-|%{NOTSPACE:captured_response_cookie}) "
            r"%{NOTSPACE:termination_state} %{HAPROXYCONNECTIONS} (?:\{%{DATA:captured_request_headers}\} )?"
            r"(?:\{%{DATA:captured_response_headers}\} )?"
            r'"(?:<BADREQ>|(?<http_verb>[^\s"]+) %{HAPROXYREQUEST:http_request}(?: HTTP/%{NUMBER:http_version})?)'
            r'(?:"(?: %{INT:connection_error:int}/(?<tls_error>[0-9A-Fa-f]+)/[0-9]+/[0-9]+/(?<tls_resumed>[01]) '
            r"(?:-|(?<server_name_indication>[^\s/]*))/(?:-|TLSv%{NUMBER:tls_version})/(?:-|%{NOTSPACE:tls_cipher}))?)?$",
            *_HAPROXY_OTHERS,
        ),
        definitions=_ACCEPTED,
        library="HAPROXYHTTPBASE",
        ecs={
            **_HAPROXY_OTHERS_ECS,
            "connection_error": "haproxy.connection_error",
            "tls_error": "haproxy.tls_error",
            "tls_resumed": "haproxy.tls_resumed",
            "server_name_indication": "tls.client.server_name",
            "tls_version": "tls.version",
            "tls_cipher": "tls.cipher",
        },
        times=_HAPROXY_TIME,
        syslog=True,
    ),
    PatternPreset(
        name="haproxy-tcp",
        reads="HAProxy with `option tcplog`; failed connections, checks of servers",
        patterns=(
            r"%{ACCEPTED} %{INT:time_queue:int}/%{INT:time_backend_connect:int}/\+?%{INT:time_duration:int} "
            r"\+?%{INT:bytes_read:int} %{NOTSPACE:termination_state} %{HAPROXYCONNECTIONS}$",
            *_HAPROXY_OTHERS,
        ),
        definitions=_ACCEPTED,
        library="HAPROXYTCPBASE",
        ecs=_HAPROXY_OTHERS_ECS,
        times=_HAPROXY_TIME,
        syslog=True,
    ),
    PatternPreset(
        name="iis",
        reads="IIS: the W3C format with its default fields",
        patterns=(
            r"%{IISTIME:timestamp} %{IPORHOST:server} (?:-|%{NOTSPACE:verb}) (?:-|%{NOTSPACE:request}) (?:-|%{NOTSPACE:query}) "
            r"%{INT:port:int} (?:-|%{NOTSPACE:auth}) %{IPORHOST:clientip} (?:-|%{NOTSPACE:agent}) (?:-|%{NOTSPACE:referrer}) "
            r"%{INT:response:int} %{INT:substatus:int} %{INT:winstatus:int} %{INT:time_taken:int}$",
        ),
        library="IISLOG",
        times={"timestamp": Time(layout="%Y-%m-%d %H:%M:%S", utc=True)},
        # A head with other fields is not skipped: the lines after it could have as many values, and would be read
        # wrong.
        no_record=r"^#(?:Software|Version|Date|Start-Date|End-Date|Remark):|^#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query "
        r"s-port cs-username c-ip cs\(User-Agent\) cs\(Referer\) sc-status sc-substatus sc-win32-status time-taken *$",
    ),
)
