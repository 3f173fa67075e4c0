"""Pytest fixtures for real servers; the root conftest names this module in `pytest_plugins`.

`NAME_server` is shared by the whole run (also by pytest-xdist workers) and started when the first test asks for it;
`secure_NAME_server` is the same with TLS and access control. `start_NAME_server` gives a test servers of its own, which
it may stop, kill and configure. Every test that uses one of them gets the marker `servers`.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from tests.eventually import eventually
from tests.servers.elasticsearch import ElasticsearchOptions, ElasticsearchServer
from tests.servers.errors import MissingDownloadError, MissingProgramError, TestServerError
from tests.servers.kafka import KafkaOptions, KafkaServer
from tests.servers.mosquitto import MosquittoOptions, MosquittoServer
from tests.servers.mysql import MySQLOptions, MySQLServer
from tests.servers.postgresql import PostgreSQLOptions, PostgreSQLServer
from tests.servers.redis import RedisOptions, RedisServer
from tests.servers.rocketmq import RocketMQOptions, RocketMQServer
from tests.servers.rocketmq_native_library import native_library_directory
from tests.servers.s3 import S3Server, s3_client_jars
from tests.servers.schema_registry import SchemaRegistryOptions, SchemaRegistryServer
from tests.servers.server import Server
from tests.servers.sharing import own_server, shared_server
from tests.servers.spark_cluster import SparkCluster, SparkClusterOptions

ServerT = TypeVar("ServerT", bound=Server[Any])
ServerT_co = TypeVar("ServerT_co", covariant=True)
OptionsT_contra = TypeVar("OptionsT_contra", contravariant=True)

_SERVER_FIXTURE = re.compile(
    r"(start_|secure_|logging_)?(kafka|rocketmq|mysql|postgresql|elasticsearch|redis|mosquitto|schema_registry)_server|(logging_)?(mysql|postgresql)_database|(start_)?spark_cluster|s3_server|s3_bucket"
)


class StartServer(Protocol[ServerT_co, OptionsT_contra]):
    """Starts a server for one test; what the fixtures `start_NAME_server` are."""

    def __call__(self, options: OptionsT_contra | None = None) -> ServerT_co:
        """Start one more server; it is removed after the test."""


StartKafkaServer = StartServer[KafkaServer, KafkaOptions]
StartRocketMQServer = StartServer[RocketMQServer, RocketMQOptions]
StartMySQLServer = StartServer[MySQLServer, MySQLOptions]
StartPostgreSQLServer = StartServer[PostgreSQLServer, PostgreSQLOptions]
StartSparkCluster = StartServer[SparkCluster, SparkClusterOptions]
StartElasticsearchServer = StartServer[ElasticsearchServer, ElasticsearchOptions]
StartRedisServer = StartServer[RedisServer, RedisOptions]
StartSchemaRegistryServer = StartServer[SchemaRegistryServer, SchemaRegistryOptions]
StartMosquittoServer = StartServer[MosquittoServer, MosquittoOptions]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a server, before `-m` chooses among them."""
    for item in items:
        if any(_SERVER_FIXTURE.fullmatch(name) for name in getattr(item, "fixturenames", ())):
            item.add_marker("servers")


#: Set to "auto", what a machine cannot provide is skipped with the reason; with "required" or without, it is an error.
#: A server that the machine can provide and that does not start is an error in any case.
_MODE_VARIABLE = "HEADRACE_TEST_SERVERS"
_MODES = ("auto", "required")


@contextmanager
def skipped_where_impossible() -> Iterator[None]:
    try:
        yield
    except (MissingProgramError, MissingDownloadError) as error:
        mode = os.environ.get(_MODE_VARIABLE) or "required"
        if mode not in _MODES:
            raise TestServerError(f"{_MODE_VARIABLE} is {mode!r}; it may be {' or '.join(_MODES)}") from error
        if mode != "auto":
            raise
        pytest.skip(f"this machine has no such server: {str(error).splitlines()[0]}")


@contextmanager
def _shared_by_name(kind: type[ServerT], name: str, options: Any = None) -> Iterator[ServerT]:
    with ExitStack() as stack:
        with skipped_where_impossible():
            server = stack.enter_context(shared_server(kind, name, options))
        yield server


@contextmanager
def _shared(kind: type[ServerT], options: Any = None) -> Iterator[ServerT]:
    """The server that the kind's variable names, else the one that this run shares."""
    address = os.environ.get(kind.variable)
    if address:
        yield kind.from_variable(address)
    else:
        with _shared_by_name(kind, kind.kind, options) as server:
            yield server


@contextmanager
def _starter(kind: type[ServerT]) -> Iterator[Callable[..., ServerT]]:
    """A function that starts servers of their own, until the end of the context."""
    if os.environ.get(kind.variable):
        pytest.skip(f"needs a {kind.kind} server of its own, but {kind.variable} is set to one that is not ours")
    with ExitStack() as stack:

        def start(options: Any = None) -> ServerT:
            with skipped_where_impossible():
                return stack.enter_context(own_server(kind, options))
            raise AssertionError("unreachable: what is not returned is raised or skipped")

        yield start


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[KafkaServer]:
    """Kafka on one node, or the one that HEADRACE_TEST_KAFKA=host:port names."""
    with _shared(KafkaServer) as server:
        yield server


@pytest.fixture(scope="session")
def secure_kafka_server() -> Iterator[KafkaServer]:
    """Kafka with SASL, TLS and an authorizer: see `.security`."""
    with _shared_by_name(KafkaServer, "secure-kafka", KafkaOptions(secure=True)) as server:
        yield server


@pytest.fixture
def start_kafka_server() -> Iterator[StartKafkaServer]:
    """Start Kafka servers that this test may stop, kill and configure."""
    with _starter(KafkaServer) as start:
        yield start


@pytest.fixture(scope="session")
def rocketmq_server() -> Iterator[RocketMQServer]:
    """RocketMQ with one broker, or the one that HEADRACE_TEST_ROCKETMQ=host:port (its name server) names."""
    with _shared(RocketMQServer) as server:
        yield server


@pytest.fixture(scope="session")
def secure_rocketmq_server() -> Iterator[RocketMQServer]:
    """RocketMQ that demands signed requests and takes connections with and without TLS: see `.security`."""
    with _shared_by_name(RocketMQServer, "secure-rocketmq", RocketMQOptions(secure=True)) as server:
        yield server


@pytest.fixture
def start_rocketmq_server() -> Iterator[StartRocketMQServer]:
    """Start RocketMQ servers that this test may stop, kill and configure."""
    with _starter(RocketMQServer) as start:
        yield start


@pytest.fixture(scope="session")
def rocketmq_native_library() -> Path:
    """A directory for LD_LIBRARY_PATH with the librocketmq.so that rocketmq-client-python loads; built once."""
    with skipped_where_impossible():
        return native_library_directory()
    raise AssertionError("unreachable: what is not returned is raised or skipped")


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MySQLServer]:
    """MariaDB, or the server that HEADRACE_TEST_MYSQL=user:password@host:port names."""
    with _shared(MySQLServer) as server:
        yield server


@pytest.fixture(scope="session")
def secure_mysql_server() -> Iterator[MySQLServer]:
    """MariaDB that offers TLS, with users who must use it: see `.security`."""
    with _shared_by_name(MySQLServer, "secure-mysql", MySQLOptions(secure=True)) as server:
        yield server


@pytest.fixture(scope="session")
def logging_mysql_server() -> Iterator[MySQLServer]:
    """MariaDB that writes a binary log of rows; this process's own, so that nobody else moves the end of the log."""
    config = {"log-bin": "binlog", "binlog-format": "ROW", "server-id": "1"}
    with ExitStack() as stack:
        with skipped_where_impossible():
            server = stack.enter_context(own_server(MySQLServer, MySQLOptions(config=config)))
        yield server


@pytest.fixture
def logging_mysql_database(logging_mysql_server: MySQLServer, fresh_name: Callable[[str], str]) -> Iterator[str]:
    """The name of an empty database on `logging_mysql_server`, dropped after the test."""
    name = fresh_name("database")
    _execute(logging_mysql_server, f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
    yield name
    _execute(logging_mysql_server, f"DROP DATABASE `{name}`")


@pytest.fixture
def start_mysql_server() -> Iterator[StartMySQLServer]:
    """Start MariaDB servers that this test may stop, kill and configure."""
    with _starter(MySQLServer) as start:
        yield start


@pytest.fixture(scope="session")
def elasticsearch_server() -> Iterator[ElasticsearchServer]:
    """Elasticsearch on one node, or the one that HEADRACE_TEST_ELASTICSEARCH=url names."""
    with _shared(ElasticsearchServer) as server:
        yield server


@pytest.fixture(scope="session")
def schema_registry_server() -> Iterator[SchemaRegistryServer]:
    """Apicurio Registry, or the registry of Confluent's protocol that HEADRACE_TEST_SCHEMA_REGISTRY=url names."""
    with _shared(SchemaRegistryServer) as server:
        yield server


@pytest.fixture
def start_schema_registry_server() -> Iterator[StartSchemaRegistryServer]:
    """Start registries that this test may stop and kill."""
    with _starter(SchemaRegistryServer) as start:
        yield start


@pytest.fixture(scope="session")
def secure_elasticsearch_server() -> Iterator[ElasticsearchServer]:
    """Elasticsearch with TLS that asks for a password or an API key: see `.security`."""
    with _shared_by_name(ElasticsearchServer, "secure-elasticsearch", ElasticsearchOptions(secure=True)) as server:
        yield server


@pytest.fixture
def start_elasticsearch_server() -> Iterator[StartElasticsearchServer]:
    """Start Elasticsearch servers that this test may stop, kill and configure."""
    with _starter(ElasticsearchServer) as start:
        yield start


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """Redis, or the server that HEADRACE_TEST_REDIS=user:password@host:port names."""
    with _shared(RedisServer) as server:
        yield server


@pytest.fixture(scope="session")
def secure_redis_server() -> Iterator[RedisServer]:
    """Redis that takes connections with TLS too: see `.security`."""
    with _shared_by_name(RedisServer, "secure-redis", RedisOptions(secure=True)) as server:
        yield server


@pytest.fixture
def start_redis_server() -> Iterator[StartRedisServer]:
    """Start Redis servers that this test may stop, kill and configure."""
    with _starter(RedisServer) as start:
        yield start


@pytest.fixture(scope="session")
def mosquitto_server() -> Iterator[MosquittoServer]:
    """Mosquitto, or the broker that HEADRACE_TEST_MOSQUITTO=user:password@host:port names."""
    with _shared(MosquittoServer) as server:
        yield server


@pytest.fixture
def start_mosquitto_server() -> Iterator[StartMosquittoServer]:
    """Start brokers that this test may stop, kill and configure."""
    with _starter(MosquittoServer) as start:
        yield start


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[SparkCluster]:
    """A Spark standalone cluster of two workers, or the one that HEADRACE_TEST_SPARK_CLUSTER=host:port names."""
    with _shared(SparkCluster, SparkClusterOptions(workers=2)) as cluster:
        yield cluster


@pytest.fixture
def start_spark_cluster() -> Iterator[StartSparkCluster]:
    """Start Spark clusters that this test may stop, kill and configure."""
    with _starter(SparkCluster) as start:
        yield start


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server, or the one that HEADRACE_TEST_S3=ACCESS_KEY:SECRET_KEY@host:port names."""
    with _shared(S3Server) as server:
        yield server


@pytest.fixture
def s3_bucket(s3_server: S3Server, fresh_name: Callable[[str], str]) -> str:
    """The name of an empty bucket on `s3_server`."""
    name = fresh_name("bucket").replace("_", "-")
    s3_server.file_system(allow_bucket_creation=True).create_dir(name)
    return name


@pytest.fixture(scope="session")
def s3_jars() -> list[Path]:
    """The jars with which Spark reaches S3, fitting the Hadoop of the installed pyspark."""
    with skipped_where_impossible():
        return s3_client_jars()
    raise AssertionError("unreachable: what is not returned is raised or skipped")


@pytest.fixture
def fresh_name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Make names that no test has used: the given prefix, the test's name and random digits.

    With a lower-case prefix they are lower-case letters, digits and underscores, at most 60 characters: valid for a
    topic, a group, a table, a database and an index on every server here.
    """
    test = re.sub(r"[^a-z0-9]+", "_", request.node.name.lower())

    def make(prefix: str) -> str:
        return f"{prefix}_{test}"[:51].rstrip("_") + f"_{secrets.token_hex(4)}"

    return make


@pytest.fixture
def topic(fresh_name: Callable[[str], str]) -> str:
    """The name of a topic that does not exist yet."""
    return fresh_name("topic")


@pytest.fixture
def consumer_group(fresh_name: Callable[[str], str]) -> str:
    """The name of a consumer group that nobody has joined yet."""
    return fresh_name("group")


@pytest.fixture
def index_name(fresh_name: Callable[[str], str]) -> str:
    """The name of an Elasticsearch index that does not exist yet."""
    return fresh_name("index")


@pytest.fixture
def mysql_database(mysql_server: MySQLServer, fresh_name: Callable[[str], str]) -> Iterator[str]:
    """The name of an empty database on `mysql_server`, dropped after the test."""
    name = fresh_name("database")
    _execute(mysql_server, f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
    yield name
    _execute(mysql_server, f"DROP DATABASE `{name}`")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSQLServer]:
    """PostgreSQL, or the one that HEADRACE_TEST_POSTGRESQL=user:password@host:port names."""
    with _shared(PostgreSQLServer) as server:
        yield server


@pytest.fixture(scope="session")
def logging_postgresql_server() -> Iterator[PostgreSQLServer]:
    """PostgreSQL with a log for logical replication; this process's own, so that nobody else moves the end of the log.

    Or the one that HEADRACE_TEST_LOGGING_POSTGRESQL=user:password@host:port names.
    """
    given = os.environ.get("HEADRACE_TEST_LOGGING_POSTGRESQL")
    if given:
        yield PostgreSQLServer.from_variable(given)
        return
    config = {"wal_level": "logical", "max_replication_slots": "40", "max_wal_senders": "40"}
    with ExitStack() as stack:
        with skipped_where_impossible():
            server = stack.enter_context(own_server(PostgreSQLServer, PostgreSQLOptions(config=config)))
        yield server


@pytest.fixture
def logging_postgresql_database(
    logging_postgresql_server: PostgreSQLServer, fresh_name: Callable[[str], str]
) -> Iterator[str]:
    """The name of an empty database on `logging_postgresql_server`, dropped after the test with its slots."""
    import psycopg

    name = fresh_name("db")
    _execute_postgresql(logging_postgresql_server, f'CREATE DATABASE "{name}"')
    yield name
    _execute_postgresql(
        logging_postgresql_server,
        f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = '{name}' AND active",  # noqa: S608
    )

    def slots_are_dropped() -> bool:
        try:
            _execute_postgresql(
                logging_postgresql_server,
                f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '{name}'",  # noqa: S608
            )
        except psycopg.errors.ObjectInUse:  # the process that sent its log has not ended yet
            return False
        return True

    eventually(slots_are_dropped, "no slot is in use")
    _execute_postgresql(logging_postgresql_server, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def start_postgresql_server() -> Iterator[StartPostgreSQLServer]:
    """Start PostgreSQL servers that this test may stop, kill and configure."""
    with _starter(PostgreSQLServer) as start:
        yield start


@pytest.fixture
def postgresql_database(postgresql_server: PostgreSQLServer, fresh_name: Callable[[str], str]) -> Iterator[str]:
    """The name of an empty database on `postgresql_server`, dropped after the test."""
    name = fresh_name("db")
    _execute_postgresql(postgresql_server, f'CREATE DATABASE "{name}"')
    yield name
    _execute_postgresql(postgresql_server, f'DROP DATABASE "{name}" WITH (FORCE)')


def _execute_postgresql(server: PostgreSQLServer, statement: str) -> None:
    import psycopg  # not at the top: every test run loads this module, and few need a client

    with psycopg.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        dbname="postgres",
        autocommit=True,
    ) as connection:
        connection.execute(statement)


def _execute(server: MySQLServer, statement: str) -> None:
    import pymysql  # not at the top: every test run loads this module, and few need a client

    with (
        pymysql.connect(host=server.host, port=server.port, user=server.user, password=server.password) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
