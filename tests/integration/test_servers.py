"""The test servers themselves: each starts, answers a real client, and comes back on its ports with its data."""

from __future__ import annotations

import json
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pymysql
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from elastic_transport import TlsError
from elasticsearch import AuthenticationException, Elasticsearch, NotFoundError, helpers
from pymysql.cursors import Cursor

from tests.servers.directories import run_directory
from tests.servers.elasticsearch import ElasticsearchOptions, ElasticsearchSecurity, ElasticsearchServer
from tests.servers.errors import ExternalServerError
from tests.servers.fixtures import (
    StartElasticsearchServer,
    StartKafkaServer,
    StartMySQLServer,
    StartRocketMQServer,
)
from tests.servers.kafka import KafkaSecurity, KafkaServer
from tests.servers.login import Login
from tests.servers.mysql import MySQLSecurity, MySQLServer, account, give, install
from tests.servers.rocketmq import RocketMQOptions, RocketMQSecurity, RocketMQServer
from tests.servers.rocketmq_remoting import GET_ROUTE, NO_PERMISSION, SUCCESS, UPDATE_AND_CREATE_TOPIC, request
from tests.servers.server import Server

SecurityT = TypeVar("SecurityT", ElasticsearchSecurity, KafkaSecurity, MySQLSecurity, RocketMQSecurity)

PULL_MESSAGE = 11
SEND_MESSAGE_V2 = 310

TOPIC_OF_ONE_QUEUE = {
    "defaultTopic": "TBW102",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}


def go_down(server: Server[Any], how: str) -> None:
    """Stop the server cleanly or kill it, and see that it is gone."""
    if how == "stop":
        assert server.stop(), "had to be killed"
    else:
        server.kill()
    assert not server.is_running()


def _present(security: SecurityT | None) -> SecurityT:
    assert security is not None, "not a secure server"
    return security


stop_and_kill = pytest.mark.parametrize("how", ["stop", "kill"])


class TestRocketMQ:
    """The RocketMQ server, spoken to in its remoting protocol."""

    def create_topic(self, server: RocketMQServer, broker: str, topic: str) -> None:
        """Make a topic of one queue."""
        fields = {"topic": topic, **TOPIC_OF_ONE_QUEUE}
        reply = server.request(server.brokers[broker], UPDATE_AND_CREATE_TOPIC, fields)
        assert reply.code == SUCCESS, reply

    def send(self, server: RocketMQServer, broker: str, topic: str, body: bytes) -> None:
        """Send a message to queue 0."""
        fields = dict(zip("abcdefghij", ["p", topic, "TBW102", "4", "0", "0", "", "0", "", "0"], strict=True))
        fields["g"] = str(int(time.time() * 1000))  # born then
        reply = server.request(server.brokers[broker], SEND_MESSAGE_V2, fields, body)
        assert reply.code == SUCCESS, reply

    def pull(self, server: RocketMQServer, broker: str, topic: str) -> bytes:
        """The encoded messages of queue 0 from offset 0."""
        fields = {
            "consumerGroup": "test",
            "topic": topic,
            "queueId": "0",
            "queueOffset": "0",
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        reply = server.request(server.brokers[broker], PULL_MESSAGE, fields)
        assert reply.code == SUCCESS, reply
        return reply.body

    def route(self, server: RocketMQServer, topic: str) -> set[str]:
        """The names of the brokers that hold the topic."""
        reply = server.request(server.name_server, GET_ROUTE, {"topic": topic})
        assert reply.code == SUCCESS, reply
        return {data["brokerName"] for data in json.loads(reply.body)["brokerDatas"]}

    def test_shared_server_answers(self, rocketmq_server: RocketMQServer, topic: str) -> None:
        """A message sent is a message pulled."""
        self.create_topic(rocketmq_server, "broker-0", topic)
        self.send(rocketmq_server, "broker-0", topic, b"hello")
        assert b"hello" in self.pull(rocketmq_server, "broker-0", topic)

    @stop_and_kill
    def test_comes_back_with_its_data(self, start_rocketmq_server: StartRocketMQServer, topic: str, how: str) -> None:
        """Ports, topics and messages outlive a clean stop and a crash."""
        server = start_rocketmq_server()
        self.create_topic(server, "broker-0", topic)
        self.send(server, "broker-0", topic, b"kept")
        go_down(server, how)
        with pytest.raises(OSError):
            self.route(server, topic)
        server.start()
        assert b"kept" in self.pull(server, "broker-0", topic)

    def test_brokers_stop_one_by_one(self, start_rocketmq_server: StartRocketMQServer, topic: str) -> None:
        """With two brokers, one goes on while the other is down."""
        server = start_rocketmq_server(RocketMQOptions(brokers=2))
        for broker in server.brokers:
            self.create_topic(server, broker, topic)
        server.kill("broker-1")
        assert server.is_running("namesrv", "broker-0")
        assert not server.is_running("broker-1")
        self.send(server, "broker-0", topic, b"still here")
        server.start()
        assert self.route(server, topic) == {"broker-0", "broker-1"}

    def test_external_server_is_left_alone(self, rocketmq_server: RocketMQServer) -> None:
        """A server that an environment variable names can be used but not stopped."""
        external = RocketMQServer.from_variable(rocketmq_server.to_variable())
        assert external.brokers == rocketmq_server.brokers
        with pytest.raises(ExternalServerError, match="HEADRACE_TEST_ROCKETMQ"):
            external.kill()
        assert self.route(rocketmq_server, "SELF_TEST_TOPIC") == {"broker-0"}

    def test_access_control(self, secure_rocketmq_server: RocketMQServer, topic: str) -> None:
        """The broker tells the super user from an outsider, from a wrong key and from nobody."""
        server, security = secure_rocketmq_server, _present(secure_rocketmq_server.security)
        self.create_topic(server, "broker-0", topic)
        self.send(server, "broker-0", topic, b"secret")
        for login, reason in (
            (security.outsider, "no permission"),
            (Login(security.user.name, "wrong"), "signature"),
            (None, "username"),
        ):
            fields = {"topic": topic, **TOPIC_OF_ONE_QUEUE}
            reply = request(server.brokers["broker-0"], UPDATE_AND_CREATE_TOPIC, fields, login=login)
            assert reply.code == NO_PERMISSION
            assert reason in (reply.remark or "")

    def test_tls_is_offered(self, secure_rocketmq_server: RocketMQServer) -> None:
        """Name server and broker take TLS on the same ports, with a certificate that can be checked."""
        security = _present(secure_rocketmq_server.security)
        context = security.certificates.client_context()
        fields = {"topic": "SELF_TEST_TOPIC"}
        assert request(secure_rocketmq_server.name_server, GET_ROUTE, fields, tls=context).code == SUCCESS
        self.check_stranger(security, secure_rocketmq_server.brokers["broker-0"])

    def test_tls_is_required(self, start_rocketmq_server: StartRocketMQServer, topic: str) -> None:
        """In enforcing mode a connection without TLS is closed, by the name server and by the broker."""
        server = start_rocketmq_server(RocketMQOptions(secure=True, require_tls=True))
        login = _present(server.security).user
        self.create_topic(server, "broker-0", topic)
        assert self.route(server, topic) == {"broker-0"}
        for address in (server.name_server, server.brokers["broker-0"]):
            with pytest.raises(ConnectionError):
                request(address, GET_ROUTE, {"topic": topic}, login=login)
        server.kill()
        server.start()
        assert self.route(server, topic) == {"broker-0"}

    def check_stranger(self, security: RocketMQSecurity, address: str) -> None:
        """A client that trusts another authority must refuse the server."""
        stranger = ssl.create_default_context(cafile=str(security.certificates.stranger_authority))
        with pytest.raises(ssl.SSLCertVerificationError):
            request(address, GET_ROUTE, tls=stranger)


class TestKafka:
    """The Kafka server, with confluent-kafka as the client."""

    def produce(self, settings: dict[str, str], topic: str, value: bytes) -> None:
        """Send one message and wait until the broker has it."""
        errors: list[KafkaError | None] = []
        producer = Producer(settings)
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(30) == 0
        if errors[0]:
            raise KafkaException(errors[0])

    def consume(self, settings: dict[str, str], topic: str, group: str) -> bytes:
        """The first message of the topic."""
        consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
        try:
            consumer.subscribe([topic])
            messages = consumer.consume(1, timeout=30)
            assert messages
            assert messages[0].error() is None
            value = messages[0].value()
            assert isinstance(value, bytes)
            return value
        finally:
            consumer.close()

    def test_shared_server_answers(self, kafka_server: KafkaServer, topic: str, consumer_group: str) -> None:
        """A message produced is a message consumed."""
        settings = {"bootstrap.servers": kafka_server.bootstrap}
        self.produce(settings, topic, b"hello")
        assert self.consume(settings, topic, consumer_group) == b"hello"

    @stop_and_kill
    def test_comes_back_with_its_data(
        self, start_kafka_server: StartKafkaServer, topic: str, consumer_group: str, how: str
    ) -> None:
        """Ports, topics and messages outlive a clean stop and a crash."""
        server = start_kafka_server()
        settings = {"bootstrap.servers": server.bootstrap}
        self.produce(settings, topic, b"kept")
        go_down(server, how)
        server.start()
        assert self.consume(settings, topic, consumer_group) == b"kept"

    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    @pytest.mark.parametrize("listener", ["sasl_plaintext", "sasl_ssl"])
    def test_sasl(self, secure_kafka_server: KafkaServer, topic: str, listener: str, mechanism: str) -> None:
        """The user gets in, an outsider may do nothing, a wrong password is refused."""
        security = _present(secure_kafka_server.security)

        def settings(login: Login) -> dict[str, str]:
            address: str = getattr(security, listener)
            return {
                "bootstrap.servers": address,
                "security.protocol": listener.upper(),
                "ssl.ca.location": str(security.certificates.authority),
                "sasl.mechanism": mechanism,
                "sasl.username": login.name,
                "sasl.password": login.password,
            }

        self.produce(settings(security.user), topic, b"hello")
        with pytest.raises(KafkaException) as failure:
            self.produce(settings(security.outsider), topic, b"hello")
        assert failure.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        wrong = settings(Login(security.user.name, "wrong"))
        assert KafkaError._AUTHENTICATION in self.connection_errors(wrong)

    def test_tls(self, secure_kafka_server: KafkaServer, topic: str) -> None:
        """TLS with and without a client's certificate; a client that trusts another authority gets no connection."""
        security = _present(secure_kafka_server.security)
        files = security.certificates
        settings = {
            "bootstrap.servers": security.ssl,
            "security.protocol": "SSL",
            "ssl.ca.location": str(files.authority),
        }
        self.produce(settings, topic, b"anonymous")
        identity = {"ssl.certificate.location": str(files.client), "ssl.key.location": str(files.client_key)}
        self.produce({**settings, **identity}, topic, b"known")
        stranger = {**settings, "ssl.ca.location": str(files.stranger_authority)}
        assert KafkaError._SSL in self.connection_errors(stranger)

    def connection_errors(self, settings: dict[str, str]) -> set[int]:
        """The codes of the errors that a client reports while it tries in vain to connect."""
        codes: set[int] = set()
        config: dict[str, Any] = {**settings, "error_cb": lambda error: codes.add(error.code())}
        client = AdminClient(config)
        deadline = time.monotonic() + 30
        while not codes - {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN} and time.monotonic() < deadline:
            client.poll(0.1)
        return codes


class TestMySQL:
    """The MariaDB server, with PyMySQL as the client."""

    @contextmanager
    def cursor(self, server: MySQLServer, login: Login | None = None, **tls: str) -> Iterator[Cursor]:
        """A cursor of a new connection, as the given or the server's own user."""
        user, password = (login.name, login.password) if login else (server.user, server.password)
        with (
            pymysql.connect(host=server.host, port=server.port, user=user, password=password, **tls) as connection,
            connection.cursor() as cursor,
        ):
            yield cursor
            connection.commit()

    def test_shared_server_answers(self, mysql_server: MySQLServer, mysql_database: str) -> None:
        """A row inserted is a row selected, with characters beyond the basic plane."""
        with self.cursor(mysql_server) as cursor:
            cursor.execute(f"CREATE TABLE {mysql_database}.t (id INT PRIMARY KEY, name VARCHAR(20))")
            cursor.execute(f"INSERT INTO {mysql_database}.t VALUES (1, %s)", ["水🌊"])  # noqa: S608
            cursor.execute(f"SELECT * FROM {mysql_database}.t")  # noqa: S608
            assert cursor.fetchall() == ((1, "水🌊"),)

    @stop_and_kill
    def test_comes_back_with_its_data(self, start_mysql_server: StartMySQLServer, how: str) -> None:
        """Port, users and rows outlive a clean stop and a crash."""
        server = start_mysql_server()
        with self.cursor(server) as cursor:
            cursor.execute("CREATE DATABASE d")
            cursor.execute("CREATE TABLE d.t (id INT PRIMARY KEY)")
            cursor.execute("INSERT INTO d.t VALUES (1)")
        go_down(server, how)
        with pytest.raises(pymysql.err.OperationalError, match="Can't connect"), self.cursor(server):
            pass
        server.start()
        with self.cursor(server) as cursor:
            cursor.execute("SELECT * FROM d.t")
            assert cursor.fetchall() == ((1,),)

    def test_is_installed_where_its_user_may_not_write_temporary_files(
        self, mysql_server: MySQLServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """mysql_server: the programs are there."""
        tmp_path.chmod(0o700)
        with tempfile.TemporaryDirectory(dir=run_directory()) as scratch:
            give(Path(scratch), account())
            monkeypatch.setenv("TMPDIR", str(tmp_path))
            install(Path(scratch) / "data")
            assert (Path(scratch) / "data" / "ibdata1").is_file()

    def test_outsider_has_no_permission(self, start_mysql_server: StartMySQLServer) -> None:
        """Who can log in cannot therefore read."""
        server = start_mysql_server()
        denied = pytest.raises(pymysql.err.OperationalError, match="Access denied")
        with self.cursor(server, server.outsider) as cursor, denied:
            cursor.execute("CREATE DATABASE d")
        wrong = Login(server.user, "wrong")
        with pytest.raises(pymysql.err.OperationalError, match="Access denied"), self.cursor(server, wrong):
            pass

    def test_tls(self, secure_mysql_server: MySQLServer) -> None:
        """Users that must use TLS, or present a certificate, get in only so."""
        server, security = secure_mysql_server, _present(secure_mysql_server.security)
        files = security.certificates
        trust = {"ssl_ca": str(files.authority)}
        identity = {**trust, "ssl_cert": str(files.client), "ssl_key": str(files.client_key)}
        for login, options in ((security.tls_user, trust), (security.certificate_user, identity)):
            with self.cursor(server, login, **options) as cursor:
                cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
                row = cursor.fetchone()
                assert row
                assert row[1], "the connection is not encrypted"
        with self.cursor(server) as cursor:
            cursor.execute("SELECT 1")  # without TLS, as a user of whom it is not demanded
        plain: dict[str, Any] = {"ssl_disabled": True}
        for login, options in ((security.tls_user, plain), (security.certificate_user, trust)):
            with pytest.raises(pymysql.err.OperationalError, match="denied"), self.cursor(server, login, **options):
                pass
        stranger = {"ssl_ca": str(files.stranger_authority), "ssl_verify_cert": "true"}
        unverified = pytest.raises(pymysql.err.OperationalError, match="CERTIFICATE_VERIFY_FAILED")
        with unverified, self.cursor(server, security.tls_user, **stranger):
            pass


class TestElasticsearch:
    """The Elasticsearch server, with its own Python client."""

    def test_shared_server_answers(self, elasticsearch_server: ElasticsearchServer, index_name: str) -> None:
        """What the connector needs is there: bulk, search, external versions, a point in time, sliced reading."""
        with Elasticsearch(elasticsearch_server.url) as client:
            client.indices.create(index=index_name, settings={"number_of_replicas": 0})
            documents = ({"_index": index_name, "_id": str(i), "_source": {"n": i}} for i in range(100))
            assert helpers.bulk(client, documents, refresh=True)[0] == 100
            assert (
                client.index(index=index_name, id="v", document={}, version=5, version_type="external")["_version"] == 5
            )
            point = client.open_point_in_time(index=index_name, keep_alive="1m")["id"]
            found = {
                hit["_id"]
                for part in range(2)
                for hit in client.search(
                    pit={"id": point}, slice={"id": part, "max": 2}, size=100, sort=["_shard_doc"]
                )["hits"]["hits"]
            }
            assert found == {str(i) for i in range(100)}
            client.close_point_in_time(id=point)
            client.indices.delete(index=index_name)

    def test_data_stream_is_made_by_a_bulk_request(
        self, elasticsearch_server: ElasticsearchServer, fresh_name: Callable[[str], str]
    ) -> None:
        """Data streams come from a template and the first document; their own requests are a missing module."""
        stream = fresh_name("stream")
        with Elasticsearch(elasticsearch_server.url) as client:
            client.indices.put_index_template(name=stream, index_patterns=[stream], data_stream={}, priority=500)
            document = {"_op_type": "create", "_index": stream, "@timestamp": "2024-01-01T00:00:00Z"}
            assert helpers.bulk(client, [document], refresh=True)[0] == 1
            assert [one["name"] for one in client.indices.resolve_index(name=stream)["data_streams"]] == [stream]

    @stop_and_kill
    def test_comes_back_with_its_data(
        self, start_elasticsearch_server: StartElasticsearchServer, index_name: str, how: str
    ) -> None:
        """Port, indices and documents outlive a clean stop and a crash."""
        server = start_elasticsearch_server()
        with Elasticsearch(server.url) as client:
            client.index(index=index_name, id="1", document={"n": 1})
            go_down(server, how)
            server.start()
            assert client.get(index=index_name, id="1")["_source"] == {"n": 1}

    def test_settings_are_taken(self, start_elasticsearch_server: StartElasticsearchServer, index_name: str) -> None:
        """A test can have a node that does not create indices on its own."""
        server = start_elasticsearch_server(ElasticsearchOptions(config={"action.auto_create_index": "false"}))
        with Elasticsearch(server.url) as client, pytest.raises(NotFoundError, match="no such index"):
            client.index(index=index_name, document={})

    def test_credentials_are_checked(self, secure_elasticsearch_server: ElasticsearchServer, index_name: str) -> None:
        """A password or an API key opens; nothing, or a wrong one, does not."""
        security = _present(secure_elasticsearch_server.security)
        url, trust = secure_elasticsearch_server.url, str(security.certificates.authority)
        with Elasticsearch(url, ca_certs=trust, api_key=security.api_key) as client:
            client.index(index=index_name, id="1", document={"n": 1})
        basic = (security.user.name, security.user.password)
        with Elasticsearch(url, ca_certs=trust, basic_auth=basic) as client:
            assert client.get(index=index_name, id="1")["_source"] == {"n": 1}
        with Elasticsearch(url, ca_certs=trust) as client, pytest.raises(AuthenticationException, match="missing"):
            client.info()
        refused = pytest.raises(AuthenticationException, match="unable to authenticate")
        with Elasticsearch(url, ca_certs=trust, basic_auth=(security.user.name, "wrong")) as client, refused:
            client.info()

    def test_certificate_is_checked(self, secure_elasticsearch_server: ElasticsearchServer) -> None:
        """A client that trusts another authority gets no connection."""
        security = _present(secure_elasticsearch_server.security)
        url, stranger = secure_elasticsearch_server.url, str(security.certificates.stranger_authority)
        unverified = pytest.raises(TlsError, match="CERTIFICATE_VERIFY_FAILED")
        with Elasticsearch(url, ca_certs=stranger, api_key=security.api_key) as client, unverified:
            client.info()
