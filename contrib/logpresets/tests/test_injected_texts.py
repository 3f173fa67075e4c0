"""Texts that others choose, such as names of users and files, in lines as their program writes them.

Whatever the text: it comes back in its column and the other columns stay as they were, or the line is a dead letter.
"""

from __future__ import annotations

import re
import string
from typing import Any

import pytest
from headrace_logpresets.presets import presets
from hypothesis import given, settings
from hypothesis import strategies as st
from preset_lines import GOLDEN
from test_variants import FILES, decoded, options, shown, variants

from tests.effort import examples

_ANY = "".join(each for each in string.printable if each not in string.whitespace) + " éß漢"


def without(characters: str) -> str:
    return "".join(each for each in _ANY if each not in characters)


_QUOTED, _TOKEN, _IN_URL = without('"\\'), without(" "), without(' "\\')
#: What a text of a column may hold, as the program writes it: what it escapes, refuses or replaces is left out.
_ALPHABETS: dict[str, dict[str, str]] = {
    "sshd": {"user": _ANY},
    "sudo": {"pwd": _ANY, "command": _ANY},
    "postfix": {
        "from": _QUOTED, "to": _QUOTED, "message_id": without("<>"), "sasl_username": _ANY, "relay": without("[]: ,"),
    },
    "nginx-access": {"auth": _QUOTED, "agent": _QUOTED, "referrer": _QUOTED, "request": _IN_URL, "forwarded_for": _QUOTED},
    "apache-access": {"auth": _QUOTED, "request": _IN_URL},
    "apache-combined": {"auth": _QUOTED, "agent": _QUOTED, "request": _IN_URL},
    "apache-error": {"message": _ANY},
    "nginx-error": {"message": _ANY, "request": _IN_URL, "upstream": _QUOTED},
    "haproxy-http": {"http_request": _IN_URL, "captured_request_headers": without('"#{}'), "captured_request_cookie": _IN_URL},
    "postgresql": {"message": _ANY, "user": without("@"), "database": without("@")},
    "mysql-error": {"message": _ANY},
    "mysql-general": {"argument": _ANY},
    "mysql-slow": {"query": _ANY, "user": _ANY},
    "dnsmasq": {"dns_question": _ANY},
    "dnsmasq-dhcp": {"client_hostname": string.ascii_letters + string.digits + ".-"},
    "bind-query": {"view": without(": ")},
    "iis": {"agent": _TOKEN, "referrer": _TOKEN, "query": _TOKEN, "auth": _TOKEN},
    "auditd": {name: without('" ') for name in ("comm", "exe", "path", "account", "rule_key")},
}  # fmt: skip
#: Lines in which the text is one that the administrator chooses, such as the name of an account that there is, or a path that is no name.
_OTHERS = {"sshd": re.compile("session|subsystem"), "dnsmasq": re.compile(r": /| is \S+$|: (?:exactly|regex|gravity)")}


def places(preset: str, column: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Return lines in which the text of a column stands once: the line, that text, all columns."""
    lines = [line for name, line, _ in GOLDEN if name == preset]
    lines += [each["line"] for path in FILES if path.stem == preset for each in variants(path) if each["columns"]]
    rows = decoded(preset, lines).frame.to_dicts()
    found = []
    for line, row in zip(lines, rows, strict=True):
        text = row[column]
        written = f'"{text}"' if preset == "auditd" else text
        chosen = preset not in _OTHERS or not _OTHERS[preset].search(line)
        if chosen and text and len(text) > 1 and line.count(written) == 1 and line.count(text) == 1:
            found.append((line, text, shown(row, preset)))
    return found


def texts(alphabet: str, line: str, text: str) -> st.SearchStrategy[str]:
    """Texts of the alphabet, many of them made of parts of the line itself."""
    begin = line.index(text)
    pieces = st.sampled_from(
        [*re.findall(r"\s|[^\s]+", line), text, line[begin:], line[begin + len(text) :], line[:begin]]
    )
    made = st.one_of(
        st.text(alphabet, min_size=1, max_size=20),
        st.lists(pieces, min_size=1, max_size=6).map("".join),
        st.integers(0, len(line)).map(lambda end: text + line[begin + len(text) :][:end]),
    )
    # A program has no text that begins or ends with blanks, or is its sign for none.
    return made.map(lambda each: "".join(one for one in each if one in alphabet).strip()).filter(
        lambda each: each not in ("", "-", "[unknown]")
    )


@pytest.mark.parametrize(
    ("preset", "column"), [(preset, column) for preset, columns in _ALPHABETS.items() for column in columns]
)
@settings(max_examples=examples(100, least=5))
@given(data=st.data())
def test_a_text_comes_back_or_the_line_is_bad(preset: str, column: str, data: st.DataObject) -> None:
    line, text, row = data.draw(st.sampled_from(_PLACES[preset, column]))
    other = data.draw(texts(_ALPHABETS[preset][column], line, text))
    got = decoded(preset, [line.replace(text, other)])
    assert got.frame.height + len(got.bad) == 1
    for found in got.frame.to_dicts():
        expected = {**row, column: other}
        # All pairs, as they are written.
        expected.pop("data", None)
        assert {name: value for name, value in shown(found, preset).items() if name != "data"} == expected


_PLACES = {(preset, column): places(preset, column) for preset, columns in _ALPHABETS.items() for column in columns}


@pytest.mark.parametrize(
    ("preset", "line", "said"),
    [
        (
            "nginx-error",
            '2026/01/15 10:23:45 [error] 8#8: *4 open() "/srv/x, client: 198.51.100.9, server: e, request: "GET / HTTP/1.1" failed '
            '(2: No such file or directory), client: 192.0.2.66, server: e.org, request: "GET /x HTTP/1.1", host: "e.org"',
            "', client: ' comes twice",
        ),
        (
            "postfix",
            'Jan 15 10:23:45 web-1 postfix/smtp[7]: 4F9D195432C: to=<"a>, relay=x[198.51.100.9]:25, delay=0, delays=0/0/0/0, '
            'dsn=2.0.0, status=sent (x"@e.org>, relay=none, delay=1, delays=0/0/0/0, dsn=5.4.4, status=bounced (Host not found)',
            "'>, relay=' comes twice",
        ),
        (
            "sudo",
            "Jan 15 10:23:45 web-1 sudo: ida : TTY=pts/1 ; PWD=/tmp/x ; USER=www ; COMMAND=/bin/ls ; USER=root ; COMMAND=/bin/sh",
            "' ; USER=' comes twice",
        ),
        (
            "dnsmasq",
            "Jan 15 10:23:45 web-1 dnsmasq[9]: query[A] x from 198.51.100.9 from 192.0.2.66",
            "' from ' comes twice",
        ),
        (
            "postgresql",
            "2026-01-15 10:23:45.123 UTC [7] ida@shop LOG:  x@y FATAL:  no such user",
            "comes twice",
        ),
    ],
)
def test_lines_that_can_be_read_in_two_ways_are_bad(preset: str, line: str, said: str) -> None:
    assert options(preset) == ({"year": 2026} if presets()[preset].syslog else {})
    (bad,) = decoded(preset, [line]).bad
    assert "it can be read in two ways" in bad.reason
    assert said in bad.reason


def test_what_looks_like_a_pair_within_quotes_is_none() -> None:
    line = 'type=USER_CMD msg=audit(1768472625.123:7): comm="a pid=7 uid=0" exe="/x acct=\'b" pid=5 uid=1000 acct="ida"'
    (row,) = decoded("auditd", [line]).frame.to_dicts()
    assert {name: row[name] for name in ("comm", "exe", "pid", "uid", "account")} == {
        "comm": "a pid=7 uid=0",
        "exe": "/x acct='b",
        "pid": 5,
        "uid": "1000",
        "account": "ida",
    }
