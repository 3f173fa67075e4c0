"""Fifty grok patterns over mixed log lines on one core: ``python -m benchmarks.grok [lines]``.

Beside headrace's format runs what a Logstash pipeline does line by line: the patterns are tried in their order, with Python's
``re`` and with the ``regex`` package; and ``pygrok`` where it is installed. All take the same patterns and lines. One line in a
hundred fits no pattern.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import headrace as hr
from headrace_grok.codec import GrokCodec
from headrace_grok.library import definitions_of
from headrace_grok.programs import Program, compiled

BROWSER = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36"
#: The patterns of a host that runs all these programs, the frequent ones in no special place.
PATTERNS = (
    "%{HAPROXYHTTP}", "%{HAPROXYTCP}", "^%{COMBINEDAPACHELOG}", "^%{HTTPD_ERRORLOG}", "^%{NGINXERROR}", "%{POSTGRESQL}",
    "%{SYSLOG5424LINE}", "%{CEF}", "%{LEEF}",
    *(f"^%{{SYSLOGBASE}} %{{{name}}}" for name in (
        "SSHD_ACCEPTED", "SSHD_FAILED", "SSHD_INVALID", "SSHD_DISCONNECTED", "SSHD_SESSION", "SUDO", "POSTFIX_CONNECT",
        "POSTFIX_REJECT", "POSTFIX_DELIVERY", "POSTFIX_QMGR", "POSTFIX_CLEANUP", "POSTFIX_SMTPD", "POSTFIX_REMOVED",
    )),
    "^%{SYSLOGBASE} %{DATA:prefix}%{IPTABLES}",
    "%{CRONLOG}", "%{SYSLOGPAMSESSION}",
    *(f"^%{{SYSLOGBASE}} service {name}: %{{WORD:action}} took %{{NUMBER:duration:float}} ms for %{{USER:who}}" for name in (
        "cart", "search", "login", "pay", "ship", "mail", "stock", "price", "tax", "audit", "geo", "ads",
    )),
    *(f"^%{{TIMESTAMP_ISO8601:at}} {name} %{{LOGLEVEL:level}} \\[%{{DATA:thread}}\\] %{{NOTSPACE:who}} - %{{GREEDYDATA:text}}" for name in (
        "api", "batch", "cron", "queue", "index", "proxy", "cache", "auth", "sync", "report", "export", "import", "notify",
    )),
)  # fmt: skip


def lines_of(count: int) -> list[bytes]:
    """Return mixed lines; about one in a hundred fits no pattern."""
    chance = random.Random(17)
    syslog = "Mar 16 00:01:25 evita"
    kinds: list[tuple[int, Callable[[], str]]] = [
        (35, lambda: f'{_ip(chance)} - - [24/Feb/2015:23:13:{chance.randrange(10, 60)} +0000] "GET /images/{chance.randrange(9999)}.png '
                     f'HTTP/1.1" 200 {chance.randrange(99999)} "http://example.com/list?page={chance.randrange(99)}" "{BROWSER}"'),
        (12, lambda: f"{syslog} sshd[{chance.randrange(1, 9999)}]: Failed password for invalid user u{chance.randrange(99)} from "
                     f"{_ip(chance)} port {chance.randrange(1, 65536)} ssh2"),
        (12, lambda: f"2024-01-15T10:23:45.123Z {chance.choice(['api', 'cache', 'notify'])} INFO [worker-{chance.randrange(9)}] "
                     f"com.example.Service - request {chance.randrange(99999)} done"),
        (10, lambda: f"{syslog} haproxy[14389]: {_ip(chance)}:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 "
                     f'{chance.randrange(9999)} - - ---- 1/1/1/1/0 0/0 {{1wt.eu}} {{}} "GET /index.html HTTP/1.1"'),
        (8, lambda: f"{syslog} postfix/smtp[1713]: 3F2504E04F: to=<u{chance.randrange(999)}@example.com>, relay=mail.example.com"
                    "[192.0.2.25]:25, delay=1.2, delays=0.1/0.01/0.5/0.6, dsn=2.0.0, status=sent (250 2.0.0 Ok: queued as 12345)"),
        (8, lambda: f"{syslog} kernel: DROP IN=eth0 OUT= MAC=00:16:3e:5e:6c:00 SRC={_ip(chance)} DST=192.0.2.1 LEN=60 TOS=0x00 PREC=0x00 "
                    f"TTL=53 ID={chance.randrange(9999)} DF PROTO=TCP SPT=44321 DPT=22 WINDOW=29200 RES=0x00 SYN URGP=0"),
        (7, lambda: f"{syslog} app[77]: service {chance.choice(['cart', 'pay', 'ads'])}: add took {chance.random() * 99:.2f} ms for bob"),
        (4, lambda: f"2024-01-15 10:23:45.123 UTC [{chance.randrange(1, 9999)}] LOG:  duration: 1502.337 ms  statement: SELECT 1"),
        (3, lambda: f"{syslog} sudo: alice : TTY=pts/0 ; PWD=/home/alice ; USER=root ; COMMAND=/usr/bin/apt update"),
        (1, lambda: f"{syslog} app[77]: something that nobody wrote a pattern for, number {chance.randrange(9999)}"),
    ]  # fmt: skip
    made = chance.choices([make for _, make in kinds], [weight for weight, _ in kinds], k=count)
    return [make().encode() for make in made]


def _ip(chance: random.Random) -> str:
    return f"10.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(256)}"


def by_headrace(lines: Sequence[bytes], engine: str, batch: int = 20_000) -> tuple[float, int]:
    """Return the seconds that the format takes, and how many lines it refused."""
    codec = GrokCodec(GrokCodec.Settings.of({"patterns": PATTERNS, "engine": engine}))
    decoder = codec.decoder(codec.default_schema())
    decoder.decode(hr.Bodies.of(lines[:batch]))  # what is compiled once per process
    batches = [hr.Bodies.of(lines[begin : begin + batch]) for begin in range(0, len(lines), batch)]
    begun = time.process_time()
    refused = sum(len(decoder.decode(bodies).bad) for bodies in batches)
    return time.process_time() - begun, refused


def by_loop(programs: Sequence[Program], lines: Sequence[bytes], compile: Callable[[str], Any]) -> tuple[float, int]:
    """Return the seconds that a loop over lines and patterns takes, and how many lines fit none."""
    searches = [(compile(program.python).search, program.groups) for program in programs]
    refused = 0
    begun = time.process_time()
    for line in lines:
        text = line.decode()
        for search, groups in searches:
            found = search(text)
            if found is not None:
                values = found.groupdict()
                fields: dict[str, str] = {}
                for group, field in groups.items():
                    if values[group]:
                        fields.setdefault(field, values[group])
                break
        else:
            refused += 1
    return time.process_time() - begun, refused


def by_pygrok(lines: Sequence[bytes]) -> tuple[float, int] | None:
    """Return the same for pygrok; None where it is not installed."""
    try:
        from pygrok import Grok  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    own = {name: definition.text for name, definition in definitions_of().items()}
    searches = [
        Grok(pattern.replace(":int}", "}").replace(":float}", "}"), custom_patterns=own) for pattern in PATTERNS
    ]
    refused = 0
    begun = time.process_time()
    for line in lines:
        text = line.decode()
        refused += all(search.match(text) is None for search in searches)
    return time.process_time() - begun, refused


def main() -> None:
    """Print a JSON object per way."""
    import re

    import regex

    assert len(PATTERNS) == 50
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    lines = lines_of(count)
    programs = compiled(PATTERNS, definitions_of())
    few = lines[: max(count // 20, 1_000)]
    results: dict[str, tuple[int, tuple[float, int] | None]] = {
        "headrace, hyperscan": (len(lines), by_headrace(lines, "hyperscan")),
        "headrace, without hyperscan": (len(lines), by_headrace(lines, "polars")),
        "a loop of re": (len(few), by_loop(programs, few, re.compile)),
        "a loop of regex": (len(few), by_loop(programs, few, regex.compile)),
        "pygrok": (len(few), by_pygrok(few)),
    }
    for way, (number, measured) in results.items():
        if measured is None:
            print(json.dumps({"way": way, "installed": False}))
            continue
        seconds, refused = measured
        print(
            json.dumps({"way": way, "lines": number, "refused": refused, "lines_per_second": round(number / seconds)})
        )


if __name__ == "__main__":
    main()
