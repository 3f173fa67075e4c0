"""TLS, logins, and servers that are not there: errors that say what to mend."""

from __future__ import annotations

import hashlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from elasticsearch_world import ID, Cluster, Relay
from headrace.flow.schema import Schema
from headrace.foundation.errors import JobError, RetriableError
from headrace.interfaces.source import EARLIEST
from headrace_elasticsearch import (
    ElasticsearchSink,
    ElasticsearchSinkSettings,
    ElasticsearchSource,
    ElasticsearchSourceSettings,
)

from tests.servers.elasticsearch import ElasticsearchSecurity, ElasticsearchServer
from tests.sink_tests import insert, numbers, text_of


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class TestNoServer:
    def test_nobody_listens(self, cluster: Cluster) -> None:
        url = f"http://127.0.0.1:{closed_port()}"
        text = text_of(RetriableError, lambda: cluster.sink(ID, url=url))
        assert text.startswith(f"Elasticsearch at {url}: ")
        assert "Connection refused" in text
        assert "hint: is the server running, and is the address right (http or https, host, port)?" in text
        source = cluster.source(url=url)
        assert f"Elasticsearch at {url}: " in text_of(RetriableError, source.queues)
        source.close()

    def test_a_host_that_nobody_knows(self, cluster: Cluster) -> None:
        text = text_of(RetriableError, lambda: cluster.sink(ID, url="http://nothing.invalid:9200"))
        assert "nothing.invalid" in text

    def test_a_server_that_says_nothing(self, cluster: Cluster) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            text = text_of(RetriableError, lambda: cluster.sink(ID, url=url, request_timeout="500 ms"))
        assert "timed out" in text


class TestSecure:
    """The server checks one password and one key; it has no users with fewer rights."""

    @pytest.fixture(autouse=True)
    def _server(self, secure_elasticsearch_server: ElasticsearchServer, fresh_name: Callable[[str], str]) -> None:
        security = secure_elasticsearch_server.security
        assert security is not None
        self.security: ElasticsearchSecurity = security
        self.url = secure_elasticsearch_server.url
        self.index = fresh_name("index")

    def options(self, **more: Any) -> dict[str, Any]:
        return {"url": self.url, "index": self.index, **more}

    def login(self) -> dict[str, Any]:
        return {"user": self.security.user.name, "password": self.security.user.password}

    def round_trip(self, **options: Any) -> None:
        """Write and read some documents."""
        sink = ElasticsearchSink(ElasticsearchSinkSettings.of(self.options(create_index=True, **options)))
        sink.check(Schema.of(ID))
        try:
            sink.prepare(Schema.of(ID))
            insert(sink, numbers("q", 0, 3))
        finally:
            sink.close()
        source = ElasticsearchSource(ElasticsearchSourceSettings.of(self.options(**options)))
        [queue] = source.queues()
        reader = source.open(queue, EARLIEST)
        assert reader.latest >= 3
        reader.close()
        source.close()

    @property
    def authority(self) -> str:
        return str(self.security.certificates.authority)

    def fingerprint(self) -> str:
        pem = self.security.certificates.server.read_text()
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()

    def test_a_password(self) -> None:
        self.round_trip(ssl_ca=self.authority, **self.login())

    def test_a_password_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ELASTICSEARCH_TEST_PASSWORD", self.security.user.password)
        login = {**self.login(), "password": "${ELASTICSEARCH_TEST_PASSWORD}"}
        self.round_trip(ssl_ca=self.authority, **login)

    def test_an_api_key(self) -> None:
        self.round_trip(ssl_ca=self.authority, api_key=self.security.api_key)

    def test_a_wrong_password(self) -> None:
        login = {"user": self.security.user.name, "password": "wrong"}
        text = text_of(JobError, lambda: self.round_trip(ssl_ca=self.authority, **login))
        assert "(status 401" in text
        assert "[plugin 'elasticsearch', option 'user']\n  hint: check user and password, or the API key" in text
        text = text_of(JobError, lambda: self.round_trip(ssl_ca=self.authority, api_key="wrong"))
        assert "option 'api_key'" in text

    def test_a_server_of_another_authority(self) -> None:
        for trusting in ({"ssl_ca": str(self.security.certificates.stranger_authority)}, {}):
            text = text_of(JobError, lambda: self.round_trip(**self.login(), **trusting))  # noqa: B023
            assert f"Elasticsearch at {self.url}: " in text
            assert "certificate verify failed" in text
            assert "[plugin 'elasticsearch', option 'ssl_ca']\n  hint: check the certificates" in text

    def test_a_certificate_of_another_name(self) -> None:
        """The certificate is for localhost and 127.0.0.1; 127.0.0.2 is the same machine."""
        host, _, port = self.url.removeprefix("https://").partition(":")
        relay = Relay(host, int(port), "127.0.0.2")
        url = f"https://127.0.0.2:{relay.port}"
        text = text_of(JobError, lambda: self.round_trip(ssl_ca=self.authority, **{**self.login(), "url": url}))
        relay.cut()
        assert "IP address mismatch, certificate is not valid for '127.0.0.2'" in text

    def test_a_fingerprint(self) -> None:
        for shown in (self.fingerprint(), ":".join(self.fingerprint()[i : i + 2] for i in range(0, 64, 2)).upper()):
            self.round_trip(ssl_fingerprint=shown, **self.login())
        text = text_of(JobError, lambda: self.round_trip(ssl_fingerprint="00" * 32, **self.login()))
        assert "option 'ssl_fingerprint'" in text

    def test_no_check_at_all(self) -> None:
        self.round_trip(ssl_verify=False, **self.login())

    def test_a_client_with_a_certificate(self) -> None:
        """The test server does not ask for it; that it is used shows by one that is not there."""
        files = self.security.certificates
        own = {"ssl_certificate": str(files.client), "ssl_key": str(files.client_key)}
        self.round_trip(ssl_ca=self.authority, **self.login(), **own)
        missing = {"ssl_ca": self.authority, "ssl_certificate": "/nowhere/client.pem"}
        text = text_of(JobError, lambda: self.round_trip(**self.login(), **missing))
        assert "cannot use '/nowhere/client.pem': No such file or directory [plugin 'elasticsearch', option" in text

    def test_a_file_of_authorities_that_is_not_there(self) -> None:
        text = text_of(JobError, lambda: self.round_trip(ssl_ca="/nowhere/ca.pem", **self.login()))
        assert (
            "cannot use '/nowhere/ca.pem': No such file or directory [plugin 'elasticsearch', option 'ssl_ca']" in text
        )

    def test_without_tls(self) -> None:
        """A server that speaks TLS does not understand; nothing tells that from a server that is away."""
        text = text_of(
            RetriableError, lambda: self.round_trip(**{**self.login(), "url": self.url.replace("https", "http")})
        )
        assert "(http or https, host, port)?" in text

    @pytest.fixture
    def relay(self) -> Iterator[Relay]:
        host, _, port = self.url.removeprefix("https://").partition(":")
        made = Relay(host, int(port))
        yield made
        made.cut()

    def test_an_outage_behind_tls_passes(self, relay: Relay) -> None:
        """A connection that breaks, be it in the handshake, is no matter of certificates."""
        options = self.options(create_index=True, ssl_ca=self.authority, **self.login())
        sink = ElasticsearchSink(ElasticsearchSinkSettings.of({**options, "url": f"https://127.0.0.1:{relay.port}"}))
        sink.check(Schema.of(ID))
        sink.prepare(Schema.of(ID))
        insert(sink, numbers("q", 0, 3))
        relay.cut()
        text_of(RetriableError, lambda: insert(sink, numbers("q", 3, 3)))
        with socket.create_server(("127.0.0.1", relay.port)) as listener:

            def hang_up() -> None:
                connection, _ = listener.accept()
                connection.recv(10)
                connection.close()

            thread = threading.Thread(target=hang_up)
            thread.start()
            text_of(RetriableError, lambda: insert(sink, numbers("q", 3, 3)))
            thread.join()
        relay.open()
        insert(sink, numbers("q", 3, 3))
        sink.close()


def test_tls_with_a_server_without(cluster: Cluster) -> None:
    """Nothing is sent in the clear when TLS was asked for."""
    url = cluster.url.replace("http:", "https:")
    text = text_of(JobError, lambda: cluster.sink(ID, url=url))
    assert "option 'ssl_ca'" in text
    assert "that the server has TLS" in text
