"""Lines of each program, written after its documentation, and the columns that they become. Columns that are left out are NULL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

HEADER = {"timestamp": datetime(2026, 1, 15, 10, 23, 45, tzinfo=UTC), "logsource": "web-1"}


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


def header(program: str, pid: int | None = None) -> dict[str, Any]:
    return {**HEADER, "program": program, **({} if pid is None else {"pid": pid})}


def windows_event(provider: str, number: int, data: dict[str, str]) -> str:
    parts = "".join(f'<Data Name="{name}">{value}</Data>' for name, value in data.items())
    return (
        '<Event xmlns="http://schemas.microsoft.com/win/2004/08/events/event"><System>'
        f'<Provider Name="{provider}"/><EventID>{number}</EventID><TimeCreated SystemTime="2026-01-15T10:23:45.1234567Z"/>'
        "<EventRecordID>9</EventRecordID><Channel>C</Channel><Computer>PC-1</Computer></System>"
        f"<EventData>{parts}</EventData></Event>"
    )


REQUEST = {
    "clientip": "192.0.2.7", "auth": "ida", "timestamp": at(2026, 1, 15, 9, 23, 45), "verb": "GET", "request": "/a?b=c",
    "httpversion": "1.1", "response": 200, "bytes": 512,
}  # fmt: skip
QUALITY = {"actconn": 5, "feconn": 4, "beconn": 3, "srvconn": 2, "retries": 0, "srv_queue": 0, "backend_queue": 1}

#: The preset, a line, its columns.
GOLDEN: list[tuple[str, str, dict[str, Any]]] = [
    (
        "sshd",
        "Jan 15 10:23:45 web-1 sshd[812]: message repeated 2 times: [ Failed password for root from 192.0.2.7 port 40022 ssh2]",
        {**header("sshd", 812), "repeats": 2, "event": "Failed", "method": "password", "user": "root", "clientip": "192.0.2.7",
         "clientport": 40022, "protocol": "ssh2"},
    ),
    (
        "dnsmasq-dhcp",
        "Jan 15 10:23:45 web-1 dnsmasq-dhcp[99]: DHCPACK(eth0) 192.168.1.5 52:54:00:12:34:56 pc-1",
        {**header("dnsmasq-dhcp", 99), "event": "DHCPACK", "interface": "eth0", "address": "192.168.1.5", "mac": "52:54:00:12:34:56",
         "client_hostname": "pc-1"},
    ),
    (
        "auditd",
        "type=PROCTITLE msg=audit(1364481363.243:24287) : proctitle=636174",
        {"record_type": "PROCTITLE", "timestamp": at(2013, 3, 28, 14, 36, 3, 243000), "sequence": 24287,
         "data": "proctitle=636174", "command": "cat"},
    ),
    (
        "nginx-access",
        '192.0.2.7 - ida [15/Jan/2026:10:23:45 +0100] "GET /a?b=c HTTP/1.1" 200 512 "https://example.org/" "curl/8.5.0"',
        {**REQUEST, "referrer": "https://example.org/", "agent": "curl/8.5.0"},
    ),
    (
        "nginx-access",
        '2001:db8::7 - - [15/Jan/2026:10:23:45 +0000] "\\x16\\x03\\x01" 400 150 "-" "-"',
        {"clientip": "2001:db8::7", "timestamp": at(2026, 1, 15, 10, 23, 45), "rawrequest": "\\x16\\x03\\x01",
         "response": 400, "bytes": 150},
    ),
    ("nginx-access", '192.0.2.7 - ida [15/Jan/2026:10:23:45 +0100] "GET /a?b=c HTTP/1.1" 200 512', REQUEST),
    (
        "nginx-error",
        '2026/01/15 10:23:45 [error] 812#7: *42 open() "/srv/x" failed (2: No such file or directory), client: 192.0.2.7, '
        'server: example.org, request: "GET /x HTTP/2.0", upstream: "http://10.0.0.1:80/x", host: "example.org"',
        {"timestamp": at(2026, 1, 15, 10, 23, 45), "severity": "error", "pid": 812, "threadid": 7, "connection": 42,
         "message": 'open() "/srv/x" failed (2: No such file or directory)', "clientip": "192.0.2.7", "server": "example.org",
         "verb": "GET", "request": "/x", "httpversion": "2.0", "upstream": "http://10.0.0.1:80/x", "host": "example.org"},
    ),
    (
        "nginx-error",
        "2026/01/15 10:23:45 [notice] 1#1: start worker processes",
        {"timestamp": at(2026, 1, 15, 10, 23, 45), "severity": "notice", "pid": 1, "threadid": 1,
         "message": "start worker processes"},
    ),
    ("apache-access", '192.0.2.7 - ida [15/Jan/2026:10:23:45 +0100] "GET /a?b=c HTTP/1.1" 200 512', REQUEST),
    (
        "apache-combined",
        'www.example.org:443 192.0.2.7 - ida [15/Jan/2026:10:23:45 +0100] "GET /a?b=c HTTP/1.1" 200 512 "-" "a \\"b\\" c"',
        {**REQUEST, "vhost": "www.example.org", "vhostport": 443, "agent": 'a \\"b\\" c'},
    ),
    (
        "apache-error",
        "[Thu Jan 15 10:23:45.123456 2026] [core:error] [pid 35708:tid 4328636416] [client 192.0.2.7:51234] "
        "AH00128: File does not exist: /srv/favicon.ico",
        {"timestamp": at(2026, 1, 15, 10, 23, 45, 123456), "module": "core", "loglevel": "error", "pid": 35708,
         "tid": 4328636416, "clientip": "192.0.2.7", "clientport": 51234, "errorcode": "AH00128",
         "message": "File does not exist: /srv/favicon.ico"},
    ),
    (
        "apache-error",
        "[Thu Jan 15 10:23:45 2026] [error] [client 192.0.2.7] user ida: authentication failure",
        {"timestamp": at(2026, 1, 15, 10, 23, 45), "loglevel": "error", "clientip": "192.0.2.7",
         "message": "user ida: authentication failure"},
    ),
    (
        "haproxy-http",
        "Jan 15 10:23:45 web-1 haproxy[14389]: 10.0.1.2:33317 [15/Jan/2026:10:23:44.655] http-in static/srv1 10/0/30/69/109 "
        '200 2750 - - ---- 5/4/3/2/0 0/1 {example.org} {} "GET /index.html HTTP/1.1"',
        {**header("haproxy", 14389), "client_ip": "10.0.1.2", "client_port": 33317,
         "accept_date": at(2026, 1, 15, 10, 23, 44, 655000), "frontend_name": "http-in", "backend_name": "static",
         "server_name": "srv1", "time_request": 10, "time_queue": 0, "time_backend_connect": 30, "time_backend_response": 69,
         "time_duration": 109, "http_status_code": 200, "bytes_read": 2750, "termination_state": "----", **QUALITY,
         "captured_request_headers": "example.org", "http_verb": "GET", "http_request": "/index.html", "http_version": "1.1"},
    ),
    (
        "haproxy-tcp",
        "Jan 15 10:23:45 web-1 haproxy[14387]: 10.0.1.2:33313 [15/Jan/2026:10:23:44.655] fnt bck/srv1 0/0/5007 212 -- 5/4/3/2/0 0/1",
        {**header("haproxy", 14387), "client_ip": "10.0.1.2", "client_port": 33313,
         "accept_date": at(2026, 1, 15, 10, 23, 44, 655000), "frontend_name": "fnt", "backend_name": "bck", "server_name": "srv1",
         "time_queue": 0, "time_backend_connect": 0, "time_duration": 5007, "bytes_read": 212, "termination_state": "--", **QUALITY},
    ),
    (
        "iis",
        "2026-01-15 10:23:45 10.0.0.4 GET /default.htm id=7 443 CONTOSO\\ida 192.0.2.7 Mozilla/5.0+(Windows) - 200 0 0 31\r",
        {"timestamp": at(2026, 1, 15, 10, 23, 45), "server": "10.0.0.4", "verb": "GET", "request": "/default.htm", "query": "id=7",
         "port": 443, "auth": "CONTOSO\\ida", "clientip": "192.0.2.7", "agent": "Mozilla/5.0+(Windows)", "response": 200,
         "substatus": 0, "winstatus": 0, "time_taken": 31},
    ),
    (
        "sshd",
        "Jan 15 10:23:45 web-1 sshd[811]: Accepted publickey for ida from 192.0.2.10 port 51234 ssh2: ED25519 SHA256:abc",
        {**header("sshd", 811), "event": "Accepted", "method": "publickey", "user": "ida", "clientip": "192.0.2.10",
         "clientport": 51234, "protocol": "ssh2", "fingerprint": "ED25519 SHA256:abc"},
    ),
    (
        "sshd",
        "2026-01-15T11:23:45.000000+01:00 web-1 sshd-session[812]: Failed password for invalid user admin from 2001:db8::7 port 40022 ssh2",
        {**header("sshd-session", 812), "event": "Failed", "method": "password", "unknown_user": "invalid user", "user": "admin",
         "clientip": "2001:db8::7", "clientport": 40022, "protocol": "ssh2"},
    ),
    (
        "sshd",
        "Jan 15 10:23:45 web-1 sshd[9]: Invalid user oracle from 192.0.2.77 port 40022",
        {**header("sshd", 9), "event": "Invalid user", "user": "oracle", "clientip": "192.0.2.77", "clientport": 40022},
    ),
    (
        "sshd",
        "Jan 15 10:23:45 web-1 sshd[9]: Connection closed by authenticating user root 192.0.2.77 port 40022 [preauth]",
        {**header("sshd", 9), "event": "Connection closed", "user": "root", "clientip": "192.0.2.77", "clientport": 40022,
         "phase": "preauth"},
    ),
    (
        "sshd",
        "Jan 15 10:23:45 web-1 sshd[9]: Disconnected from user ida 192.0.2.77 port 40022",
        {**header("sshd", 9), "event": "Disconnected", "user": "ida", "clientip": "192.0.2.77", "clientport": 40022},
    ),
    (
        "sshd",
        "Jan 15 10:23:45 web-1 sshd[9]: Received disconnect from 192.0.2.77 port 40022:11: disconnected by user",
        {**header("sshd", 9), "event": "Received disconnect", "clientip": "192.0.2.77", "clientport": 40022, "reason_code": 11,
         "reason": "disconnected by user"},
    ),
    (
        "sshd",
        "Jan 15 10:23:45 web-1 sshd[9]: pam_unix(sshd:session): session opened for user ida(uid=1000) by (uid=0)",
        {**header("sshd", 9), "event": "session opened", "user": "ida"},
    ),
    (
        "sudo",
        "Jan 15 10:23:45 web-1 sudo:      ida : TTY=pts/1 ; PWD=/home/ida ; USER=root ; COMMAND=/bin/ls -l /root",
        {**header("sudo"), "sudo_user": "ida", "tty": "pts/1", "pwd": "/home/ida", "target_user": "root",
         "command": "/bin/ls -l /root"},
    ),
    (
        "sudo",
        "Jan 15 10:23:45 web-1 sudo[7]: bob : user NOT in sudoers ; TTY=pts/1 ; PWD=/tmp ; USER=root ; COMMAND=/bin/sh",
        {**header("sudo", 7), "sudo_user": "bob", "sudo_error": "user NOT in sudoers", "tty": "pts/1", "pwd": "/tmp",
         "target_user": "root", "command": "/bin/sh"},
    ),
    (
        "iptables",
        "Jan 15 10:23:45 web-1 kernel: [12345.678901] [UFW BLOCK] IN=eth0 OUT= MAC=00:16:3e:00:00:01:00:16:3e:00:00:02:08:00 "
        "SRC=192.0.2.7 DST=198.51.100.1 LEN=40 TOS=0x00 PREC=0x00 TTL=243 ID=54321 "
        "PROTO=TCP SPT=45678 DPT=22 WINDOW=1024 RES=0x00 SYN URGP=0",
        {**header("kernel"), "log_prefix": "[UFW BLOCK]", "in_interface": "eth0",
         "mac": "00:16:3e:00:00:01:00:16:3e:00:00:02:08:00", "src_ip": "192.0.2.7", "dst_ip": "198.51.100.1", "length": 40,
         "ttl": 243, "id": 54321, "transport": "TCP", "src_port": 45678, "dst_port": 22},
    ),
    (
        "auditd",
        'type=SYSCALL msg=audit(1768472625.123:24287): arch=c000003e syscall=2 success=no exit=-13 a0=7fff items=1 ppid=2686 pid=3538 '
        'auid=1000 uid=1000 gid=1000 euid=0 tty=pts0 ses=1 comm="cat" exe="/bin/cat" key="sshd_config"',
        {"record_type": "SYSCALL", "timestamp": at(2026, 1, 15, 10, 23, 45, 123000), "sequence": 24287, "arch": "c000003e",
         "syscall": "2", "result": "no", "exit_code": -13, "a0": "7fff", "ppid": 2686, "pid": 3538, "auid": "1000",
         "uid": "1000", "euid": "0",
         "tty": "pts0", "session": "1", "comm": "cat", "exe": "/bin/cat", "rule_key": "sshd_config",
         "data": 'arch=c000003e syscall=2 success=no exit=-13 a0=7fff items=1 ppid=2686 pid=3538 auid=1000 uid=1000 gid=1000 euid=0 '
         'tty=pts0 ses=1 comm="cat" exe="/bin/cat" key="sshd_config"'},
    ),
    (
        "auditd",
        "node=web-1 type=USER_LOGIN msg=audit(1768472625.123:7): pid=9 uid=0 auid=4294967295 ses=4294967295 "
        "msg='op=login acct=28696E76616C6964207573657229 exe=\"/usr/sbin/sshd\" hostname=? addr=192.0.2.7 terminal=ssh res=failed'",
        {"node": "web-1", "record_type": "USER_LOGIN", "timestamp": at(2026, 1, 15, 10, 23, 45, 123000), "sequence": 7, "pid": 9,
         "uid": "0", "operation": "login", "account": "(invalid user)", "exe": "/usr/sbin/sshd", "client_address": "192.0.2.7",
         "tty": "ssh", "result": "failed",
         "data": "pid=9 uid=0 auid=4294967295 ses=4294967295 msg='op=login acct=28696E76616C6964207573657229 "
         "exe=\"/usr/sbin/sshd\" hostname=? addr=192.0.2.7 terminal=ssh res=failed'"},
    ),
    (
        "auditd",
        "type=PROCTITLE msg=audit(1768472625.123:8): proctitle=636174002F6574632F736861646F77",
        {"record_type": "PROCTITLE", "timestamp": at(2026, 1, 15, 10, 23, 45, 123000), "sequence": 8, "command": "cat /etc/shadow",
         "data": "proctitle=636174002F6574632F736861646F77"},
    ),
    (
        "dnsmasq",
        "Jan 15 10:23:45 web-1 dnsmasq[99]: query[A] example.org from 10.0.0.7",
        {**header("dnsmasq", 99), "dns_action": "query", "dns_type": "A", "dns_question": "example.org", "clientip": "10.0.0.7"},
    ),
    (
        "dnsmasq",
        "Jan 15 10:23:45 web-1 dnsmasq[99]: reply example.org is 192.0.2.1",
        {**header("dnsmasq", 99), "dns_action": "reply", "dns_question": "example.org", "dns_answer": "192.0.2.1"},
    ),
    (
        "bind-query",
        "15-Jan-2026 10:23:45.123 queries: info: client @0x7f0a 10.0.0.7#54321 (example.org): "
        "query: example.org IN AAAA +E(0)K (10.0.0.53)",
        {"timestamp": at(2026, 1, 15, 10, 23, 45, 123000), "loglevel": "info", "clientip": "10.0.0.7", "clientport": 54321,
         "dns_question": "example.org", "dns_class": "IN", "dns_type": "AAAA", "dns_flags": "+E(0)K", "serverip": "10.0.0.53"},
    ),
    (
        "postfix",
        "Jan 15 10:23:45 web-1 postfix/smtp[77]: 4F9D195432C: to=<ida@example.org>, relay=mx.example.org[192.0.2.25]:25, delay=1.5, "
        "delays=0.1/0/0.4/1, dsn=2.0.0, status=sent (250 OK)",
        {**header("postfix/smtp", 77), "queue_id": "4F9D195432C", "to": "ida@example.org", "relay": "mx.example.org",
         "relay_ip": "192.0.2.25", "relay_port": 25, "delay": 1.5, "delays": "0.1/0/0.4/1", "dsn": "2.0.0", "status": "sent",
         "status_text": "250 OK"},
    ),
    (
        "postfix",
        "Jan 15 10:23:45 web-1 postfix/smtpd[77]: NOQUEUE: reject: RCPT from unknown[192.0.2.66]: 554 5.7.1 <x@y>: Relay access denied; "
        "from=<a@b> to=<x@y> proto=ESMTP helo=<h>",
        {**header("postfix/smtpd", 77), "event": "reject", "command": "RCPT", "client_name": "unknown",
         "client_ip": "192.0.2.66", "reject_code": 554,
         "status_text": "5.7.1 <x@y>: Relay access denied", "from": "a@b", "to": "x@y", "helo": "h"},
    ),
    (
        "postgresql",
        "2026-01-15 10:23:45.123 UTC [4711] ida@shop LOG:  duration: 1250.5 ms  statement: SELECT *\n\tFROM orders",
        {"timestamp": at(2026, 1, 15, 10, 23, 45, 123000), "pid": 4711, "user": "ida", "database": "shop", "loglevel": "LOG",
         "duration_ms": 1250.5, "message": "statement: SELECT *\n\tFROM orders"},
    ),
    (
        "postgresql",
        "2026-01-15 10:23:45.123 +01 [4711] FATAL:  the database system is starting up",
        {"timestamp": at(2026, 1, 15, 9, 23, 45, 123000), "pid": 4711, "loglevel": "FATAL",
         "message": "the database system is starting up"},
    ),
    (
        "mysql-error",
        "2026-01-15T10:23:45.123456Z 8 [Warning] [MY-010055] [Server] IP address '192.0.2.7' could not be resolved",
        {"timestamp": at(2026, 1, 15, 10, 23, 45, 123456), "thread": 8, "loglevel": "Warning", "errorcode": "MY-010055",
         "subsystem": "Server", "message": "IP address '192.0.2.7' could not be resolved"},
    ),
    (
        "aws-vpc-flow",
        "2 123456789012 eni-0a1b 172.31.16.139 172.31.16.21 20641 22 6 20 4249 1768472625 1768472685 ACCEPT OK",
        {"version": 2, "account_id": "123456789012", "interface_id": "eni-0a1b", "srcaddr": "172.31.16.139",
         "dstaddr": "172.31.16.21", "srcport": 20641, "dstport": 22, "protocol": 6, "packets": 20, "bytes": 4249,
         "start": at(2026, 1, 15, 10, 23, 45), "end": at(2026, 1, 15, 10, 24, 45), "action": "ACCEPT", "log_status": "OK"},
    ),
    (
        "aws-vpc-flow",
        "2 123456789012 eni-0a1b - - - - - - - 1768472625 1768472685 - NODATA",
        {"version": 2, "account_id": "123456789012", "interface_id": "eni-0a1b", "start": at(2026, 1, 15, 10, 23, 45),
         "end": at(2026, 1, 15, 10, 24, 45), "log_status": "NODATA"},
    ),
    (
        "mysql-general",
        "2026-01-15T10:23:45.123456Z\t    8 Query\tSELECT 1\nFROM dual",
        {"timestamp": at(2026, 1, 15, 10, 23, 45, 123456), "thread": 8, "command": "Query", "argument": "SELECT 1\nFROM dual"},
    ),
    (
        "mysql-general",
        "2026-01-15T10:23:45.123456Z\t    8 Quit\t",
        {"timestamp": at(2026, 1, 15, 10, 23, 45, 123456), "thread": 8, "command": "Quit"},
    ),
    (
        "mysql-slow",
        "# Time: 2026-01-15T10:23:45.123456Z\n# User@Host: shop[shop] @ app.example.org [10.0.0.7]  Id:    12\n"
        "# Query_time: 2.500000  Lock_time: 0.000004 Rows_sent: 1  Rows_examined: 200000\nuse orders;\n"
        "SET timestamp=1768472622;\nSELECT *\nFROM t;",
        {"timestamp": at(2026, 1, 15, 10, 23, 45, 123456), "user": "shop", "client": "app.example.org", "clientip": "10.0.0.7",
         "thread": 12, "query_seconds": 2.5, "lock_seconds": 0.000004, "rows_sent": 1, "rows_examined": 200000,
         "database": "orders", "started": at(2026, 1, 15, 10, 23, 42), "query": "SELECT *\nFROM t;"},
    ),
    (
        "aws-cloudtrail",
        '{"eventVersion": "1.08", "userIdentity": {"type": "IAMUser", "userName": "ida", "arn": "arn:aws:iam::1:user/ida", '
        '"sessionContext": {"attributes": {"mfaAuthenticated": "false"}}}, "eventTime": "2026-01-15T10:23:45Z", '
        '"eventSource": "iam.amazonaws.com", "eventName": "CreateUser", "awsRegion": "us-east-1", "sourceIPAddress": "192.0.2.7", '
        '"readOnly": false, "requestParameters": {"userName":"bob"}, "responseElements": null, "eventID": "e-1"}',
        {"timestamp": at(2026, 1, 15, 10, 23, 45), "event_name": "CreateUser", "event_source": "iam.amazonaws.com",
         "event_id": "e-1", "read_only": False, "region": "us-east-1", "source_address": "192.0.2.7", "user_type": "IAMUser",
         "user_name": "ida", "user_arn": "arn:aws:iam::1:user/ida", "mfa_authenticated": "false",
         "request_parameters": '{"userName":"bob"}'},
    ),
    (
        "kubernetes-audit",
        '{"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "a-1", "stage": "ResponseComplete", '
        '"requestURI": "/api/v1/namespaces/shop/secrets/db", "verb": "get", "user": {"username": "ida", "groups": ["devs"]}, '
        '"sourceIPs": ["10.0.0.7"], "objectRef": {"resource": "secrets", "namespace": "shop", "name": "db", "apiVersion": "v1"}, '
        '"responseStatus": {"metadata": {}, "code": 403}, "requestReceivedTimestamp": "2026-01-15T10:23:45.000001Z", '
        '"stageTimestamp": "2026-01-15T10:23:45.123456Z", "annotations": {"authorization.k8s.io/decision":"forbid"}}',
        {"timestamp": at(2026, 1, 15, 10, 23, 45, 123456), "requested": at(2026, 1, 15, 10, 23, 45, 1), "audit_id": "a-1",
         "level": "Metadata", "stage": "ResponseComplete", "verb": "get", "request": "/api/v1/namespaces/shop/secrets/db",
         "user": "ida", "groups": ["devs"], "source_ips": ["10.0.0.7"], "resource": "secrets", "namespace": "shop", "name": "db",
         "api_version": "v1", "response": 403, "annotations": '{"authorization.k8s.io/decision":"forbid"}'},
    ),
    (
        "windows-sysmon",
        windows_event("Microsoft-Windows-Sysmon", 1, {"RuleName": "-", "UtcTime": "2026-01-15 10:23:45.100", "ProcessId": "4711",
                      "Image": r"C:\Windows\cmd.exe", "User": r"SHOP\ida", "ParentProcessId": "12", "Unusual": "x"}),
        {"timestamp": at(2026, 1, 15, 10, 23, 45, 123456), "event_id": 1, "provider": "Microsoft-Windows-Sysmon",
         "channel": "C", "computer": "PC-1", "record_id": 9, "utc_time": at(2026, 1, 15, 10, 23, 45, 100000), "process_id": 4711,
         "image": r"C:\Windows\cmd.exe", "user": r"SHOP\ida", "parent_process_id": 12,
         "event_data": '{"RuleName":"-","UtcTime":"2026-01-15 10:23:45.100","ProcessId":"4711",'
         r'"Image":"C:\\Windows\\cmd.exe","User":"SHOP\\ida","ParentProcessId":"12","Unusual":"x"}'},
    ),
    (
        "windows-security",
        windows_event("Microsoft-Windows-Security-Auditing", 4625, {"TargetUserName": "ida", "LogonType": "3", "IpAddress":
                      "192.0.2.7", "IpPort": "-", "ProcessId": "0x1f4"}),
        {"timestamp": at(2026, 1, 15, 10, 23, 45, 123456), "event_id": 4625, "provider": "Microsoft-Windows-Security-Auditing",
         "channel": "C", "computer": "PC-1", "record_id": 9, "target_user_name": "ida", "logon_type": 3, "ip_address": "192.0.2.7",
         "process_id": 500,
         "event_data": '{"TargetUserName":"ida","LogonType":"3","IpAddress":"192.0.2.7","IpPort":"-","ProcessId":"0x1f4"}'},
    ),
]  # fmt: skip
