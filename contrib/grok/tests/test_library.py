"""Lines from the documentation of programs, and those that Logstash publishes with its patterns, give the fields that they should."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest
from headrace_grok.library import definitions_of
from headrace_grok.matching import Matcher
from headrace_grok.programs import compiled

BROWSER = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/32.0.1700.77 Safari/537.36"
IMAGE = "/presentations/logstash-monitorama-2013/images/kibana-search.png"


def fields(pattern: str, line: str, names: str = "legacy") -> dict[str, Any] | None:
    """Return the fields that a line gives; None if the pattern does not fit."""
    matched = Matcher(compiled([pattern], definitions_of(names=names))).match(pl.Series([line]))
    if matched.bad_rows:
        return None
    row = matched.frame.row(0, named=True) if matched.frame.width else {}
    return {name: value for name, value in row.items() if value is not None}


#: Pattern, line, and the fields that it gives; a field that is not named here is not there.
GOLDEN: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    # https://httpd.apache.org/docs/2.4/logs.html
    "apache common": (
        "%{COMMONAPACHELOG}",
        '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326',
        {"clientip": "127.0.0.1", "auth": "frank", "timestamp": "10/Oct/2000:13:55:36 -0700", "verb": "GET",
         "request": "/apache_pb.gif", "httpversion": "1.0", "response": 200, "bytes": 2326},
    ),
    "apache combined": (
        "%{COMBINEDAPACHELOG}",
        '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 '
        '"http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"',
        {"clientip": "127.0.0.1", "auth": "frank", "timestamp": "10/Oct/2000:13:55:36 -0700", "verb": "GET",
         "request": "/apache_pb.gif", "httpversion": "1.0", "response": 200, "bytes": 2326,
         "referrer": "http://www.example.com/start.html", "agent": "Mozilla/4.08 [en] (Win98; I ;Nav)"},
    ),
    "apache error": (
        "%{HTTPD_ERRORLOG}",
        "[Fri Sep 09 10:42:29.902022 2011] [core:error] [pid 35708:tid 4328636416] [client 72.15.99.187] "
        "File does not exist: /usr/local/apache2/htdocs/favicon.ico",
        {"timestamp": "Fri Sep 09 10:42:29.902022 2011", "module": "core", "loglevel": "error", "pid": 35708,
         "tid": 4328636416, "clientip": "72.15.99.187",
         "message": "File does not exist: /usr/local/apache2/htdocs/favicon.ico"},
    ),
    "apache error of a proxy": (
        "%{HTTPD_ERRORLOG}",
        "[Mon Aug 31 09:30:48.958285 2015] [proxy_fcgi:error] [pid 28787:tid 140169587934976] (70008)Partial results are valid "
        "but processing is incomplete: [client 58.13.45.166:59307] AH01075: Error dispatching request to : (reading input brigade)",
        {"timestamp": "Mon Aug 31 09:30:48.958285 2015", "module": "proxy_fcgi", "loglevel": "error", "pid": 28787,
         "tid": 140169587934976, "proxy_errorcode": "70008",
         "proxy_message": "Partial results are valid but processing is incomplete", "clientip": "58.13.45.166",
         "clientport": 59307, "errorcode": "AH01075",
         "message": "Error dispatching request to : (reading input brigade)"},
    ),
    "apache error of 2.2": (
        "%{HTTPD_ERRORLOG}",
        "[Mon Aug 31 16:27:04 2015] [error] [client 10.17.42.3] Premature end of script headers: example.com",
        {"timestamp": "Mon Aug 31 16:27:04 2015", "loglevel": "error", "clientip": "10.17.42.3",
         "message": "Premature end of script headers: example.com"},
    ),
    "apache error without module": (
        "%{HTTPD_ERRORLOG}",
        "[Tue Apr 14 14:27:52.605084 2020] [:error] [pid 5688] [client 192.168.10.110:8196] script not found",
        {"timestamp": "Tue Apr 14 14:27:52.605084 2020", "loglevel": "error", "pid": 5688, "clientip": "192.168.10.110",
         "clientport": 8196, "message": "script not found"},
    ),
    "combined of Logstash": (
        "%{HTTPD_COMBINEDLOG}",
        f'83.149.9.216 - - [24/Feb/2015:23:13:42 +0000] "GET {IMAGE} HTTP/1.1" 200 203023 '
        f'"http://semicomplete.com/presentations/logstash-monitorama-2013/" "{BROWSER}"',
        {"clientip": "83.149.9.216", "timestamp": "24/Feb/2015:23:13:42 +0000", "verb": "GET", "request": IMAGE,
         "httpversion": "1.1", "response": 200, "bytes": 203023,
         "referrer": "http://semicomplete.com/presentations/logstash-monitorama-2013/", "agent": BROWSER},
    ),
    "an address as the user": (
        "%{NGINXACCESS}",
        '10.0.0.1 - username@example.com [07/Apr/2016:18:42:24 +0000] "GET /bar/foo?token=blargh HTTP/1.1" 400 75 "" "curl/8"',
        {"clientip": "10.0.0.1", "auth": "username@example.com", "timestamp": "07/Apr/2016:18:42:24 +0000", "verb": "GET",
         "request": "/bar/foo?token=blargh", "httpversion": "1.1", "response": 400, "bytes": 75, "agent": "curl/8"},
    ),
    "no status": (
        "%{COMBINEDAPACHELOG}",
        '83.149.9.216 - a.user [11/Jan/2020:23:05:27 +0100] "OPTIONS /remote.php/ HTTP/1.1" - 7908 "-" "monitoring-client (v2.2)"',
        {"clientip": "83.149.9.216", "auth": "a.user", "timestamp": "11/Jan/2020:23:05:27 +0100", "verb": "OPTIONS",
         "request": "/remote.php/", "httpversion": "1.1", "bytes": 7908, "agent": "monitoring-client (v2.2)"},
    ),
    "nginx, a request that is none": (
        "%{NGINXACCESS}",
        '192.0.2.7 - - [03/Mar/2024:04:05:06 +0000] "\\x16\\x03\\x01" 400 157 "-" "-"',
        {"clientip": "192.0.2.7", "timestamp": "03/Mar/2024:04:05:06 +0000", "rawrequest": "\\x16\\x03\\x01", "response": 400,
         "bytes": 157},
    ),
    "nginx error": (
        "%{NGINXERROR}",
        '2023/01/12 10:20:30 [error] 1234#0: *5 open() "/usr/share/nginx/html/x" failed (2: No such file or directory), '
        'client: 127.0.0.1, server: localhost, request: "GET /x HTTP/1.1", host: "localhost"',
        {"timestamp": "2023/01/12 10:20:30", "severity": "error", "pid": 1234, "threadid": 0, "connection": 5,
         "message": 'open() "/usr/share/nginx/html/x" failed (2: No such file or directory)', "clientip": "127.0.0.1",
         "server": "localhost", "verb": "GET", "request": "/x", "httpversion": "1.1", "host": "localhost"},
    ),
    "nginx notice": (
        "%{NGINXERROR}",
        "2023/01/12 10:20:30 [notice] 1#1: signal 3 (SIGQUIT) received, shutting down",
        {"timestamp": "2023/01/12 10:20:30", "severity": "notice", "pid": 1, "threadid": 1,
         "message": "signal 3 (SIGQUIT) received, shutting down"},
    ),
    # HAProxy's configuration manual, 8.2.2 and 8.2.3
    "haproxy tcp": (
        "%{HAPROXYTCP}",
        "Feb  6 12:12:56 localhost haproxy[14387]: 10.0.1.2:33313 [06/Feb/2009:12:12:51.443] fnt bck/srv1 0/0/5007 212 -- 0/0/0/0/3 0/0",
        {"syslog_timestamp": "Feb  6 12:12:56", "syslog_server": "localhost", "program": "haproxy", "pid": 14387,
         "client_ip": "10.0.1.2", "client_port": 33313, "accept_date": "06/Feb/2009:12:12:51.443", "frontend_name": "fnt",
         "backend_name": "bck", "server_name": "srv1", "time_queue": 0, "time_backend_connect": 0, "time_duration": 5007,
         "bytes_read": 212, "termination_state": "--", "actconn": 0, "feconn": 0, "beconn": 0, "srvconn": 0, "retries": 3,
         "srv_queue": 0, "backend_queue": 0},
    ),
    "haproxy http": (
        "%{HAPROXYHTTP}",
        "Feb  6 12:14:14 localhost haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 "
        '200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"',
        {"syslog_timestamp": "Feb  6 12:14:14", "syslog_server": "localhost", "program": "haproxy", "pid": 14389,
         "client_ip": "10.0.1.2", "client_port": 33317, "accept_date": "06/Feb/2009:12:14:14.655", "frontend_name": "http-in",
         "backend_name": "static", "server_name": "srv1", "time_request": 10, "time_queue": 0, "time_backend_connect": 30,
         "time_backend_response": 69, "time_duration": 109, "http_status_code": 200, "bytes_read": 2750,
         "termination_state": "----", "actconn": 1, "feconn": 1, "beconn": 1, "srvconn": 1, "retries": 0, "srv_queue": 0,
         "backend_queue": 0, "captured_request_headers": "1wt.eu", "http_verb": "GET", "http_request": "/index.html",
         "http_version": "1.1"},
    ),
    "haproxy, a time that goes on": (
        "%{HAPROXYHTTPBASE}",
        "127.0.0.1:39759 [09/Dec/2013:12:59:46.633] loadbalancer default/instance8 0/51536/1/48082/+99627 200 83285 - - ---- "
        '87/87/87/1/0 0/67 {77.24.148.74} "GET / HTTP/1.1"',
        {"client_ip": "127.0.0.1", "client_port": 39759, "accept_date": "09/Dec/2013:12:59:46.633",
         "frontend_name": "loadbalancer", "backend_name": "default", "server_name": "instance8", "time_request": 0,
         "time_queue": 51536, "time_backend_connect": 1, "time_backend_response": 48082, "time_duration": 99627,
         "http_status_code": 200, "bytes_read": 83285, "termination_state": "----", "actconn": 87, "feconn": 87,
         "beconn": 87, "srvconn": 1, "retries": 0, "srv_queue": 0, "backend_queue": 67,
         "captured_request_headers": "77.24.148.74", "http_verb": "GET", "http_request": "/", "http_version": "1.1"},
    ),
    "haproxy, a bad request": (
        "%{HAPROXYHTTPBASE}",
        "188.223.50.7:51940 [18/Jul/2011:17:05:24.339] http_proxy_ads http_proxy_ads/<NOSRV> -1/-1/-1/-1/6001 408 212 - - cR-- "
        '100/89/0/0/0 0/0 "<BADREQ>"',
        {"client_ip": "188.223.50.7", "client_port": 51940, "accept_date": "18/Jul/2011:17:05:24.339",
         "frontend_name": "http_proxy_ads", "backend_name": "http_proxy_ads", "time_request": -1, "time_queue": -1,
         "time_backend_connect": -1, "time_backend_response": -1, "time_duration": 6001, "http_status_code": 408,
         "bytes_read": 212, "termination_state": "cR--", "actconn": 100, "feconn": 89, "beconn": 0, "srvconn": 0,
         "retries": 0, "srv_queue": 0, "backend_queue": 0},
    ),
    # RFC 3164, 5.4; RFC 5424, 6.5
    "syslog 3164": (
        "%{SYSLOG3164}",
        "<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8",
        {"priority": 34, "timestamp": "Oct 11 22:14:15", "logsource": "mymachine", "program": "su",
         "message": "'su root' failed for lonvick on /dev/pts/8"},
    ),
    "syslog 5424": (
        "%{SYSLOG5424LINE}",
        "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - 'su root' failed for lonvick on /dev/pts/8",
        {"syslog5424_pri": 34, "syslog5424_ver": 1, "syslog5424_ts": "2003-10-11T22:14:15.003Z",
         "syslog5424_host": "mymachine.example.com", "syslog5424_app": "su", "syslog5424_msgid": "ID47",
         "syslog5424_msg": "'su root' failed for lonvick on /dev/pts/8"},
    ),
    "syslog 5424 with data": (
        "%{SYSLOG5424LINE}",
        '<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 [exampleSDID@32473 iut="3" eventSource="App\\]"]'
        '[examplePriority@32473 class="high"]',
        {"syslog5424_pri": 165, "syslog5424_ver": 1, "syslog5424_ts": "2003-10-11T22:14:15.003Z",
         "syslog5424_host": "mymachine.example.com", "syslog5424_app": "evntslog", "syslog5424_msgid": "ID47",
         "syslog5424_sd": '[exampleSDID@32473 iut="3" eventSource="App\\]"][examplePriority@32473 class="high"]'},
    ),
    "syslog 5424 without a place for data": (
        "%{SYSLOG5424LINE}",
        "<174>1 2016-12-31T23:59:60-04:00 resolver.se prg00000[1234] - -  info: client 10.23.53.22#63252: query",
        {"syslog5424_pri": 174, "syslog5424_ver": 1, "syslog5424_ts": "2016-12-31T23:59:60-04:00",
         "syslog5424_host": "resolver.se", "syslog5424_app": "prg00000[1234]",
         "syslog5424_msg": "info: client 10.23.53.22#63252: query"},
    ),
    "syslog of a file": (
        "%{SYSLOGLINE}",
        "Mar 16 00:01:25 evita postfix/smtpd[1713]: connect from camomile.cloud9.net[168.100.1.3]",
        {"timestamp": "Mar 16 00:01:25", "logsource": "evita", "program": "postfix/smtpd", "pid": 1713,
         "message": "connect from camomile.cloud9.net[168.100.1.3]"},
    ),
    "syslog without a host": (
        "%{SYSLOGLINE}",
        "Jan 11 22:33:44 su: 'su root' failed for luser on /dev/pts/8",
        {"timestamp": "Jan 11 22:33:44", "program": "su", "message": "'su root' failed for luser on /dev/pts/8"},
    ),
    "cron": (
        "%{CRONLOG}",
        "Jul 17 12:17:01 precision CRON[869568]: (root) CMD (   cd / && run-parts --report /etc/cron.hourly)",
        {"timestamp": "Jul 17 12:17:01", "logsource": "precision", "program": "CRON", "pid": 869568, "user": "root",
         "action": "CMD", "message": "   cd / && run-parts --report /etc/cron.hourly"},
    ),
    "a session": (
        "%{SYSLOGPAMSESSION}",
        "Jul 14 13:36:03 precision pkexec: pam_unix(polkit-1:session): session opened for user root by (uid=1001)",
        {"timestamp": "Jul 14 13:36:03", "logsource": "precision", "program": "pkexec", "pam_module": "pam_unix",
         "pam_caller": "polkit-1:session", "pam_session_state": "opened", "username": "root", "pam_by": "(uid=1001)"},
    ),
    # What OpenSSH writes: auth.c, packet.c
    "sshd accepts": (
        "%{SSHD}",
        "Accepted publickey for root from 192.0.2.10 port 51234 ssh2: RSA SHA256:uNiVztksCsDhcc0u9e8BrasO",
        {"method": "publickey", "user": "root", "clientip": "192.0.2.10", "clientport": 51234, "protocol": "ssh2",
         "fingerprint": "RSA SHA256:uNiVztksCsDhcc0u9e8BrasO"},
    ),
    "sshd refuses": (
        "%{SSHD}",
        "Failed password for invalid user admin from 2001:db8::7 port 40022 ssh2",
        {"method": "password", "user": "admin", "clientip": "2001:db8::7", "clientport": 40022, "protocol": "ssh2"},
    ),
    "sshd, an unknown user": (
        "%{SSHD}", "Invalid user oracle from 192.0.2.10 port 40022",
        {"user": "oracle", "clientip": "192.0.2.10", "clientport": 40022},
    ),
    "sshd, a connection that ends": (
        "%{SSHD}", "Connection closed by authenticating user root 192.0.2.10 port 40022 [preauth]",
        {"user": "root", "clientip": "192.0.2.10", "clientport": 40022},
    ),
    # sudoers(5), LOG FORMAT
    "sudo": (
        "%{SUDO}", "alice : TTY=pts/0 ; PWD=/home/alice ; USER=root ; COMMAND=/usr/bin/apt update",
        {"sudo_user": "alice", "tty": "pts/0", "pwd": "/home/alice", "target_user": "root", "command": "/usr/bin/apt update"},
    ),
    "sudo refuses": (
        "%{SUDO}",
        "bob : user NOT in sudoers ; TTY=pts/1 ; PWD=/tmp ; USER=root ; GROUP=adm ; TSID=00000A ; COMMAND=/bin/cat /etc/shadow",
        {"sudo_user": "bob", "sudo_error": "user NOT in sudoers", "tty": "pts/1", "pwd": "/tmp", "target_user": "root",
         "command": "/bin/cat /etc/shadow"},
    ),
    # What the target LOG of netfilter writes: nf_log_syslog.c
    "iptables": (
        "%{IPTABLES}",
        "[1234.5] DROP IN=eth0 OUT= MAC=00:16:3e:5e:6c:00:00:16:3e:11:22:33:08:00 SRC=198.51.100.4 DST=192.0.2.1 LEN=60 TOS=0x00 "
        "PREC=0x00 TTL=53 ID=1234 DF PROTO=TCP SPT=44321 DPT=22 WINDOW=29200 RES=0x00 SYN URGP=0",
        {"in_interface": "eth0", "mac": "00:16:3e:5e:6c:00:00:16:3e:11:22:33:08:00", "src_ip": "198.51.100.4",
         "dst_ip": "192.0.2.1", "length": 60, "ttl": 53, "id": 1234, "transport": "TCP", "src_port": 44321, "dst_port": 22},
    ),
    "ip6tables": (
        "%{IPTABLES}",
        "IN= OUT=eth0 SRC=2001:db8::1 DST=2001:db8::2 LEN=104 TC=0 HOPLIMIT=64 FLOWLBL=0 PROTO=ICMPv6 TYPE=128 CODE=0",
        {"out_interface": "eth0", "src_ip": "2001:db8::1", "dst_ip": "2001:db8::2", "length": 104, "ttl": 64, "transport": "ICMPv6"},
    ),
    # What Postfix writes, as its documentation shows it
    "postfix delivers": (
        "%{POSTFIX}",
        "3F2504E04F: to=<user@example.com>, orig_to=<postmaster>, relay=mail.example.com[192.0.2.25]:25, delay=1.2, "
        "delays=0.1/0.01/0.5/0.6, dsn=2.0.0, status=sent (250 2.0.0 Ok: queued as 12345)",
        {"queue_id": "3F2504E04F", "to": "user@example.com", "orig_to": "postmaster", "relay": "mail.example.com",
         "relay_ip": "192.0.2.25", "relay_port": 25, "delay": 1.2, "delays": "0.1/0.01/0.5/0.6", "dsn": "2.0.0",
         "status": "sent", "status_text": "250 2.0.0 Ok: queued as 12345"},
    ),
    "postfix connects": (
        "%{POSTFIX}", "connect from camomile.cloud9.net[168.100.1.3]",
        {"client_name": "camomile.cloud9.net", "client_ip": "168.100.1.3"},
    ),
    "postfix queues": (
        "%{POSTFIX}", "3F2504E04F: from=<a@example.com>, size=1234, nrcpt=2 (queue active)",
        {"queue_id": "3F2504E04F", "from": "a@example.com", "size": 1234, "nrcpt": 2},
    ),
    "postfix rejects": (
        "%{POSTFIX}",
        "NOQUEUE: reject: RCPT from unknown[192.0.2.77]: 554 5.7.1 <b@example.com>: Relay access denied; from=<a@example.com> "
        "to=<b@example.com> proto=ESMTP helo=<x.example>",
        {"client_name": "unknown", "client_ip": "192.0.2.77", "reject_code": 554,
         "status_text": "5.7.1 <b@example.com>: Relay access denied", "from": "a@example.com", "to": "b@example.com",
         "helo": "x.example"},
    ),
    # PostgreSQL's manual, 19.8
    "postgresql": (
        "%{POSTGRESQL}", "2024-01-15 10:23:45.123 UTC [12345] LOG:  database system is ready to accept connections",
        {"timestamp": "2024-01-15 10:23:45.123 UTC", "pid": 12345, "loglevel": "LOG",
         "message": "database system is ready to accept connections"},
    ),
    "postgresql, a slow statement of a user": (
        "%{POSTGRESQL}", "2024-01-15 10:23:45.123 CET [77] web@shop LOG:  duration: 1502.337 ms  statement: SELECT 1",
        {"timestamp": "2024-01-15 10:23:45.123 CET", "pid": 77, "user": "web", "database": "shop", "loglevel": "LOG",
         "duration_ms": 1502.337, "message": "statement: SELECT 1"},
    ),
    # The reference manual of MySQL 8.4, 7.4.2.7
    "mysql error": (
        "%{MYSQL_ERROR}", "2020-08-06T14:25:02.835618Z 0 [Note] [MY-012487] [InnoDB] DDL log recovery : begin",
        {"timestamp": "2020-08-06T14:25:02.835618Z", "thread": 0, "loglevel": "Note", "errorcode": "MY-012487",
         "subsystem": "InnoDB", "message": "DDL log recovery : begin"},
    ),
    # Red Hat's description of the audit log
    "auditd": (
        "%{AUDIT}", "type=SYSCALL msg=audit(1364481363.243:24287): arch=c000003e syscall=2 success=no exit=-13",
        {"audit_type": "SYSCALL", "audit_time": "1364481363.243", "audit_id": 24287,
         "audit_data": "arch=c000003e syscall=2 success=no exit=-13"},
    ),
    # BIND's manual, and dnsmasq's log-queries
    "bind": (
        "%{BIND9_QUERYLOG}",
        "17-Feb-2018 23:06:56.326 queries: info: client @0x7f3a1c0 172.26.0.1#12345 (www.example.com): query: www.example.com IN A "
        "+E(0)K (172.26.0.3)",
        {"timestamp": "17-Feb-2018 23:06:56.326", "loglevel": "info", "clientip": "172.26.0.1", "clientport": 12345,
         "dns_question": "www.example.com", "dns_class": "IN", "dns_type": "A", "dns_flags": "+E(0)K", "serverip": "172.26.0.3"},
    ),
    "dnsmasq query": (
        "^%{SYSLOGBASE} %{DNSMASQ}", "Jan 15 10:23:45 router dnsmasq[771]: query[AAAA] example.com from 192.0.2.10",
        {"timestamp": "Jan 15 10:23:45", "logsource": "router", "program": "dnsmasq", "pid": 771, "dns_type": "AAAA",
         "dns_question": "example.com", "clientip": "192.0.2.10"},
    ),
    "dnsmasq answer": (
        "%{DNSMASQ}", "cached example.com is 93.184.216.34",
        {"dns_action": "cached", "dns_question": "example.com", "dns_answer": "93.184.216.34"},
    ),
    # The user guide of Amazon VPC, flow log record examples
    "vpc flow": (
        "%{VPCFLOW}",
        "2 123456789010 eni-1235b8ca123456789 172.31.16.139 172.31.16.21 20641 22 6 20 4249 1418530010 1418530070 ACCEPT OK",
        {"version": 2, "account_id": "123456789010", "interface_id": "eni-1235b8ca123456789", "srcaddr": "172.31.16.139",
         "dstaddr": "172.31.16.21", "srcport": 20641, "dstport": 22, "protocol": 6, "packets": 20, "bytes": 4249,
         "start": 1418530010, "end": 1418530070, "action": "ACCEPT", "log_status": "OK"},
    ),
    "vpc flow without data": (
        "%{VPCFLOW}", "2 123456789010 eni-1235b8ca123456789 - - - - - - - 1431280876 1431280934 - NODATA",
        {"version": 2, "account_id": "123456789010", "interface_id": "eni-1235b8ca123456789", "start": 1431280876,
         "end": 1431280934, "log_status": "NODATA"},
    ),
    # Microsoft's description of W3C logging, with the default fields of IIS 10
    "iis": (
        "%{IISLOG}",
        "2024-01-15 10:23:45 192.0.2.5 GET /default.htm a=1 443 - 192.0.2.10 Mozilla/5.0+(Windows+NT+10.0) - 200 0 0 15",
        {"timestamp": "2024-01-15 10:23:45", "server": "192.0.2.5", "verb": "GET", "request": "/default.htm", "query": "a=1",
         "port": 443, "clientip": "192.0.2.10", "agent": "Mozilla/5.0+(Windows+NT+10.0)", "response": 200, "substatus": 0,
         "winstatus": 0, "time_taken": 15},
    ),
    # ArcSight's and QRadar's descriptions of their formats
    "cef": (
        "%{CEF}",
        r"Sep 19 08:26:10 host CEF:0|Security|threat\|manager|1.0|100|worm successfully stopped|10|src=10.0.0.1 dst=2.1.2.2 spt=1232",
        {"cef_version": 0, "device_vendor": "Security", "device_product": r"threat\|manager", "device_version": "1.0",
         "signature_id": "100", "name": "worm successfully stopped", "severity": "10",
         "extension": "src=10.0.0.1 dst=2.1.2.2 spt=1232"},
    ),
    "leef": (
        "%{LEEF}", "LEEF:1.0|Microsoft|MSExchange|4.0 SP1|15345|src=192.0.2.0\tdst=172.50.123.1\tsev=5",
        {"leef_version": "1.0", "device_vendor": "Microsoft", "device_product": "MSExchange", "device_version": "4.0 SP1",
         "event_id": "15345", "attributes": "src=192.0.2.0\tdst=172.50.123.1\tsev=5"},
    ),
    "leef 2": (
        "%{LEEF}", "LEEF:2.0|Lancope|StealthWatch|1.0|41|^|src=192.0.2.0^dst=172.50.123.1",
        {"leef_version": "2.0", "device_vendor": "Lancope", "device_product": "StealthWatch", "device_version": "1.0",
         "event_id": "41", "leef_delimiter": "^", "attributes": "src=192.0.2.0^dst=172.50.123.1"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(GOLDEN))
def test_a_line_gives_the_fields(case: str) -> None:
    pattern, line, wanted = GOLDEN[case]
    assert fields(pattern, line) == wanted


def test_fields_by_the_elastic_common_schema() -> None:
    line = GOLDEN["combined of Logstash"][1]
    assert fields("%{HTTPD_COMBINEDLOG}", line, "ecs") == {
        "source.address": "83.149.9.216", "timestamp": "24/Feb/2015:23:13:42 +0000", "http.request.method": "GET",
        "url.original": IMAGE, "http.version": "1.1", "http.response.status_code": 200, "http.response.body.bytes": 203023,
        "http.request.referrer": "http://semicomplete.com/presentations/logstash-monitorama-2013/",
        "user_agent.original": BROWSER,
    }  # fmt: skip
    named = fields("%{HAPROXYHTTP:line}", GOLDEN["haproxy http"][1], "ecs")
    assert named is not None
    assert (named["host.hostname"], named["process.name"], named["haproxy.connections.active"]) == (
        "localhost",
        "haproxy",
        1,
    )


@pytest.mark.parametrize("pattern", sorted(definitions_of()))
def test_every_pattern_is_searched_by_columns(pattern: str) -> None:
    """No pattern of the library needs what Rust's engine lacks, and the fields of each have names and one type."""
    for names in ("legacy", "ecs"):
        (program,) = compiled([f"%{{{pattern}}}"], definitions_of(names=names))
        assert program.rust is not None


#: Pattern, texts that it fits as a whole, and texts that it does not fit as a whole.
WHOLE: Mapping[str, tuple[list[str], list[str]]] = {
    "IPV4": (["127.0.0.1", "255.255.255.255", "0.0.0.0"], ["256.1.1.1", "1.2.3", "01.2.3.4", "1.2.3.4.5"]),
    "IPV6": (
        ["::", "::1", "2001:db8::", "2001:db8::1", "fe80::1%eth0", "1:2:3:4:5:6:7:8", "::ffff:192.0.2.1", "1::8",
         "2000:6a0:b:315:10:23:4:13", "1:2:3:4:5:6:192.0.2.1", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8"],
        ["1:2:3", "1:2:3:4:5:6:7", "12345::", "10:05:03", "g::1", ":", "1:2:3:4:5:6:7:8:9", "1.2.3.4"],
    ),
    "IPORHOST": (["127.0.0.1", "example.org", "a-b.example", "::1"], ["", "-x", "a b"]),
    "HOSTPORT": (["example.org:80", "127.0.0.1:8080"], ["example.org", "example.org:"]),
    "NUMBER": (["1", "-1.5", "+.5", "1.0"], ["1.", "a", "--1", "1e5"]),
    "BASE16NUM": (["0xFF", "ff", "-0x1"], ["0xg", ""]),
    "WORD": (["abc_1", "1"], ["a-b", "é", ""]),
    "UUID": (["123e4567-e89b-12d3-a456-426614174000"], ["123e4567-e89b-12d3-a456"]),
    "MAC": (["00:1B:44:11:3A:B7", "00-1B-44-11-3A-B7", "001B.4411.3AB7"], ["00:1B:44:11:3A"]),
    "QS": (['"a \\" b"', "'x'", '""'], ['"a', "a"]),
    "EMAILADDRESS": (["a.b@example.com", "x+y@example.org"], ["a@", "@example.com"]),
    "URI": (
        ["http://www.example.com/start.html", "https://u:p@example.org:8443/a?b=c", "file:///etc/passwd", "ftp://192.0.2.1"],
        ["www.example.com", "http:/x"],
    ),
    "UNIXPATH": (["/", "/usr/bin", "/a"], ["usr", ""]),
    "WINPATH": (["C:\\Windows\\System32", "\\\\server\\share"], ["Windows"]),
    "TIMESTAMP_ISO8601": (
        ["2003-08-24T05:14:15.000003-07:00", "2024-02-29 10:20", "2016-12-31T23:59:60Z", "2024-02-29 10:20:30,123"],
        ["2024-13-01 10:20", "24/02/29 10:20"],
    ),
    "HTTPDATE": (
        ["04/Mai/2015:13:17:15 +0200", "04/March/2015:13:17:15 +0200", "10/Oct/2000:13:55:36 -0700"],
        ["04/Map/2015:13:17:15 +0200"],
    ),
    "SYSLOGTIMESTAMP": (["Oct 11 22:14:15", "Feb  6 12:12:56", "Jul 14 12:17:01.234"], ["11 Oct 22:14:15"]),
    "LOGLEVEL": (["error", "WARN", "Information", "crit"], ["errors", "loud"]),
    "DATESTAMP_RFC2822": (["Fri, 21 Nov 1997 09:55:06 -0600"], ["Fri 21 Nov 1997 09:55:06 -0600"]),
    "DATESTAMP_OTHER": (["Mon Aug 31 16:27:04 UTC 2015"], ["Mon Aug 31 16:27:04 2015"]),
    "DATE": (["12/31/2024", "31.12.2024", "1-2-24"], ["2024-12-31x"]),
}  # fmt: skip


@pytest.mark.parametrize("pattern", list(WHOLE))
def test_a_pattern_fits_whole_texts(pattern: str) -> None:
    good, bad = WHOLE[pattern]
    assert [text for text in good if fields(rf"\A%{{{pattern}}}\z", text) is None] == []
    assert [text for text in bad if fields(rf"\A%{{{pattern}}}\z", text) is not None] == []


def test_a_long_address_is_taken_as_a_whole() -> None:
    """A search takes the first form that fits: it must not be one that fits a part of the address."""
    for address in WHOLE["IPV6"][0]:
        assert fields("from %{IP:address}", f"from {address} port 1") == {"address": address}
