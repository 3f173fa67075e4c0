"""Rows by mail through a real SMTP server: the contract of sinks, TLS and logins, refused recipients, and what becomes a header."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import JobFailedError
from headrace.testing import MemorySink, MemorySource
from headrace_contract import SinkContract
from headrace_mail import MailSink, MailSinkSettings
from mail_server import MailServer

from tests.servers.certificates import Certificates, make_certificates

#: The server of the tests runs in this process; its warnings are none of headrace.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS"),
]


def sink(server: MailServer, **options: Any) -> MailSink:
    given = {"host": "127.0.0.1", "port": server.port, "security": "none", "sender": "jobs@example.org", **options}
    if "to_column" not in given:
        given.setdefault("to", ["team@example.org"])
    return MailSink(MailSinkSettings.of(given, plugin="mail"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MailServer]:
    made = MailServer(tmp_path / "mails")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


class TestMail(SinkContract):
    plugin = "mail"

    @pytest.fixture(autouse=True)
    def _server(self, tmp_path: Path) -> Iterator[None]:
        self.server = MailServer(tmp_path / "mails")
        yield
        self.server.stop()

    def make_sink(self) -> MailSink:
        return sink(self.server, rows_per_mail=40)

    def make_with_secret(self, secret: str) -> MailSink:
        return sink(self.server, user="jobs", password=secret)

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        return [json.loads(line) for line in self.server.lines()]

    def begin_outage(self) -> None:
        self.server.answer = "451 come again later"

    def end_outage(self) -> None:
        self.server.answer = None


def run(made: MailSink, rows: Sequence[Mapping[str, Any]], dead: MemorySink | None = None, **schema: str) -> None:
    bodies = [json.dumps(row).encode() for row in rows]
    stream = hr.stream("tests", "mail").from_(MemorySource({"q": bodies}), format="json", schema=schema)
    if dead is not None:
        stream = stream.dead_letters(lambda each: each.to(dead))
    stream.to(made).run("light", show_progress=False)


def test_rows_to_those_that_they_name(server: MailServer) -> None:
    made = sink(
        server, to_column="owner", subject="{rule}: {rows} alerts", line="{host}  {count}  {nothing}", rows_per_mail=2
    )
    rows: list[dict[str, Any]] = [
        {
            "owner": "a@example.org",
            "rule": "curl\r\nBcc: all@example.org",
            "host": "wéb-1",
            "count": 1,
            "nothing": None,
        },
        {"owner": "b@example.org, a@example.org", "rule": "x", "host": "web-2", "count": 2, "nothing": "."},
        {"owner": "a@example.org", "rule": "y", "host": "web-3", "count": 3, "nothing": None},
        {"owner": "a@example.org", "rule": "z", "host": "web-4", "count": 4, "nothing": None},
        {"owner": "nobody", "rule": "z", "host": "web-5", "count": 5, "nothing": None},
        {"owner": None, "rule": "z", "host": "web-6", "count": 6, "nothing": None},
    ]
    dead = MemorySink()
    run(made, rows, dead, owner="string", rule="string", host="string", count="int64", nothing="string")
    found = {(tuple(to), message["Subject"]): message for to, message in server.mails()}
    assert set(found) == {
        (("a@example.org",), "curl Bcc: all@example.org: 2 alerts"),
        (("b@example.org", "a@example.org"), "x: 1 alerts"),
        (("a@example.org",), "z: 1 alerts"),
    }
    message = found[("a@example.org",), "curl Bcc: all@example.org: 2 alerts"]
    assert message["Bcc"] is None
    assert [line.rstrip() for line in message.get_content().splitlines()] == ["wéb-1  1", "web-3  3"]
    assert (message["From"], message["Auto-Submitted"]) == ("jobs@example.org", "auto-generated")
    assert "'nobody' is not an address" in str(dead.rows)
    assert "has no address" in str(dead.rows)
    assert len(dead.rows) == 2


def test_refused_recipients_and_contents_are_dead_letters(server: MailServer) -> None:
    server.refused["gone@example.org"] = "550 no such user"
    server.forbidden = b"lottery"
    dead = MemorySink()
    rows = [{"owner": owner, "text": text} for owner, text in (
        ("here@example.org", "one"), ("gone@example.org", "two"), ("here@example.org", "lottery"), ("here@example.org", "three"),
        ("here@example.org,gone@example.org", "four"),
    )]  # fmt: skip
    run(sink(server, to_column="owner", line="{text}"), rows, dead, owner="string", text="string")
    assert sorted(server.lines()) == ["four", "one", "three"]
    told = [str(row) for row in dead.rows]
    assert len(told) == 3
    assert any("550 no such user" in each and "two" in each for each in told)
    assert any("554 looks like spam" in each for each in told)
    assert any("the other 1 recipients have got it" in each for each in told)


def test_ids_are_those_of_the_rows(server: MailServer) -> None:
    for _ in range(2):
        run(sink(server), [{"n": 1}, {"n": 2}], n="int64")
    [(_, first), (_, second)] = server.mails()
    assert first["Message-ID"] == second["Message-ID"]


@pytest.mark.parametrize("tls", [False, True])
def test_tls_and_logins(tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, tls: bool) -> None:
    server = MailServer(tmp_path / "mails", certificates=certificates, tls=tls, login=True)
    monkeypatch.setenv("MAIL_PASSWORD", "s3cret")
    options = {
        "security": "tls" if tls else "starttls", "ssl_ca": str(certificates.authority), "user": "jobs",
        "password": "${MAIL_PASSWORD}", "host": "localhost",
    }  # fmt: skip
    try:
        run(sink(server, **options), [{"n": 1}], n="int64")
        assert server.lines() == ['{"n":1}']
        made = sink(server, **options)
        made.prepare(None)
        monkeypatch.setenv("MAIL_PASSWORD", "wrong")
        with pytest.raises(hr.JobError, match=r"535 5\.7\.8"):
            made.prepare(None)
        with pytest.raises(hr.JobError, match="authority that signed"):
            sink(server, **{**options, "ssl_ca": None}).prepare(None)
        if not tls:  # a server that wants TLS says so when it is told the sender
            with pytest.raises(JobFailedError, match="530 Must issue a STARTTLS"):
                run(sink(server, host="localhost"), [{"n": 1}], n="int64")
    finally:
        server.stop()
    with pytest.raises(hr.RetriableError, match="that the server is running"):
        sink(server, **options).prepare(None)


def test_a_server_that_goes_away_between_two_mails(server: MailServer) -> None:
    made = sink(server)
    run(made, [{"n": 1}], n="int64")
    server.stop()
    server.start()
    run(made, [{"n": 2}], n="int64")
    assert server.lines() == ['{"n":1}', '{"n":2}']


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "either the option to or to_column"),
        ({"to": ["a@b.org"], "to_column": "x"}, "either the option to or to_column"),
        ({"to": ["a"]}, "is not an address"),
        ({"to": ["a@b.org\nBcc: c@d.org"]}, "is not an address"),
        ({"to": ["a@b.org"], "subject": "a\nb"}, "single line"),
        ({"to": ["a@b.org"], "user": "u"}, "give both user and password"),
        ({"to": ["a@b.org"], "user": "u", "password": "p", "security": "none"}, "password would be sent unencrypted"),
        ({"to": ["a@b.org"], "security": "none", "ssl_ca": "x"}, "no effect with security='none'"),
    ],
)
def test_bad_options(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(hr.OptionError, match=reason):
        MailSinkSettings.of({"host": "mail.example.org", "sender": "a@b.org", **options}, plugin="mail")


def test_columns_are_checked_when_the_job_is_built() -> None:
    stream = hr.stream("tests", "out").from_(MemorySource({}), format="json", schema={"owner": "string", "n": "int64"})
    given = {"host": "mail.example.org", "sender": "a@b.org"}
    with pytest.raises(hr.OptionError, match="did you mean 'owner'"):
        stream.to_mail(to_column="onwer", **given)
    with pytest.raises(hr.OptionError, match="an address must be text"):
        stream.to_mail(to_column="n", **given)
    with pytest.raises(hr.OptionError, match="no column 'rule'"):
        stream.to_mail(to=["a@b.org"], subject="{rule}", **given)
