"""What connectors to servers have in common: checks of login and TLS."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from headrace.foundation.errors import JobError, OptionError
from headrace.interfaces.connection_options import (
    Password,
    PlaintextLogin,
    Ssl,
    SslCa,
    SslCertificate,
    SslKey,
    check_client_key,
    check_login,
    client_tls_context,
    uses_tls,
)
from headrace.interfaces.settings import Settings

from tests.servers.certificates import make_certificates


class Connection(Settings, frozen=True, kw_only=True):
    host: str = "db.example.org"
    password: Password = None
    plaintext_login: PlaintextLogin = False
    ssl: Ssl = False
    ssl_ca: SslCa = None
    ssl_certificate: SslCertificate = None
    ssl_key: SslKey = None

    def validate(self) -> None:
        check_client_key(self, plugin="db")
        check_login(self, plugin="db")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"password": "p", "host": "localhost"},
        {"password": "p", "host": "127.0.0.1"},
        {"password": "p", "ssl": True},
        {"password": "p", "ssl_ca": "ca.pem"},
        {"password": "p", "ssl_certificate": "client.pem", "ssl_key": "key.pem"},
        {"password": "p", "plaintext_login": True},
    ],
)
def test_options_that_go_together(options: dict[str, Any]) -> None:
    Connection.of(options, plugin="db")


@pytest.mark.parametrize(
    ("options", "option", "message"),
    [
        ({"ssl_key": "key.pem"}, "ssl_key", "it can be used only together with ssl_certificate"),
        ({"password": "p"}, "ssl", "without TLS the password would be sent unencrypted"),
        ({"password": "p", "host": "10.0.0.1"}, "ssl", "without TLS the password would be sent unencrypted"),
    ],
)
def test_options_that_do_not(options: dict[str, Any], option: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as found:
        Connection.of(options, plugin="db")
    assert (found.value.plugin, found.value.option) == ("db", option)
    assert found.value.hint


def test_a_file_of_tls_implies_it() -> None:
    assert not uses_tls(Connection())
    assert all(uses_tls(Connection(**given)) for given in ({"ssl": True}, {"ssl_ca": "a"}, {"ssl_certificate": "c"}))


def test_a_context_of_the_files(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    settings = Connection(ssl_ca=str(made.authority), ssl_certificate=str(made.client), ssl_key=str(made.client_key))
    context = client_tls_context(settings, plugin="db")
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(context.get_ca_certs()) == 1, "the authorities of the system are not trusted too"
    unchecked = client_tls_context(settings, plugin="db", verify=False)
    assert (unchecked.verify_mode, unchecked.check_hostname) == (ssl.CERT_NONE, False)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("no certificate")
    for option, path in (("ssl_ca", "/nowhere.pem"), ("ssl_certificate", "/nowhere.pem"), ("ssl_certificate", nothing)):
        with pytest.raises(JobError, match=f"cannot use '{path}': ") as found:
            client_tls_context(Connection.of({option: str(path)}, plugin="db"), plugin="db")
        assert (found.value.plugin, found.value.option) == ("db", option)


def test_names_with_a_prefix() -> None:
    class Registry(Settings, frozen=True, kw_only=True):
        registry_ssl_ca: SslCa = "/nowhere.pem"
        registry_ssl_certificate: SslCertificate = None
        registry_ssl_key: SslKey = None

    with pytest.raises(JobError) as found:
        client_tls_context(Registry(), plugin="avro-confluent", prefix="registry_")
    assert found.value.option == "registry_ssl_ca"
