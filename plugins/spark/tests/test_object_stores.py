"""Settings of Hadoop's s3a become pyarrow's, and secrets among them never show."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
from headrace_spark.checkpoints import object_stores
from headrace_spark.checkpoints.object_stores import S3Options
from headrace_spark.transit.payload import KeyedPlan

KEYS = {"access.key": "AKIA-1", "secret.key": "hidden-1", "session.token": "hidden-2"}


class Recorder:
    """In place of pyarrow.fs: remembers what a file system was made with."""

    def __init__(self) -> None:
        self.arguments: dict[str, Any] = {}

    def S3FileSystem(self, **arguments: Any) -> object:
        self.arguments = arguments
        return self

    def resolve_s3_region(self, bucket: str) -> str:
        return f"region-of-{bucket}"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(object_stores, "untyped_fs", recorder)
    return recorder


@pytest.mark.parametrize(
    ("settings", "secrets", "arguments"),
    [
        ({}, {}, {"scheme": "https", "anonymous": False, "region": "region-of-mine"}),
        (
            {"endpoint.region": "eu-west-1"},
            KEYS,
            {"scheme": "https", "anonymous": False, "region": "eu-west-1", "access_key": "AKIA-1",
             "secret_key": "hidden-1", "session_token": "hidden-2"},
        ),
        (
            {"endpoint": "http://10.0.0.1:9000", "path.style.access": "true", "endpoint.region": "x"},
            {},
            {"scheme": "http", "anonymous": False, "region": "x", "endpoint_override": "10.0.0.1:9000",
             "force_virtual_addressing": False},
        ),
        (
            {"endpoint": "store.example.com", "connection.ssl.enabled": "false"},
            {},
            {"scheme": "http", "anonymous": False, "endpoint_override": "store.example.com", "force_virtual_addressing": True},
        ),
        (
            {"aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider", "endpoint.region": "x"},
            {},
            {"scheme": "https", "anonymous": True, "region": "x"},
        ),
        (
            {"aws.credentials.provider": "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider",
             "assumed.role.arn": "arn:role", "endpoint.region": "x", "proxy.host": "proxy", "proxy.port": "3128"},
            {},
            {"scheme": "https", "anonymous": False, "region": "x", "role_arn": "arn:role", "proxy_options": "http://proxy:3128"},
        ),
    ],
)  # fmt: skip
def test_settings_of_spark_become_those_of_workers(
    made: Recorder, settings: dict[str, str], secrets: dict[str, str], arguments: dict[str, Any]
) -> None:
    S3Options.of(settings.get, secrets.get).file_system("mine")
    assert made.arguments == arguments


def test_a_region_of_the_environment_is_not_looked_up(made: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    S3Options().file_system("mine")
    assert "region" not in made.arguments


def test_secrets_reach_workers_and_do_not_show() -> None:
    options = S3Options.of(lambda name: None, KEYS.get)
    keyed = replace(KeyedPlan(2, (("key_by",),), {}, None), s3=options)
    assert "hidden" not in repr(keyed)
    assert "AKIA" not in repr(keyed)
    arrived = pickle.loads(pickle.dumps(keyed))  # noqa: S301
    assert arrived.s3.secret_key.reveal() == "hidden-1"


class Configuration:
    """In place of Hadoop's."""

    def __init__(self, **values: str) -> None:
        self.values = {name.replace("_", "."): value for name, value in values.items()}

    def getTrimmed(self, name: str) -> str | None:
        return self.values.get(name)

    def getPassword(self, name: str) -> list[str] | None:
        value = self.values.get(name)
        return None if value is None else list(value)


class Java:
    """In place of py4j's view of Java."""

    class java:
        class lang:
            String = staticmethod("".join)


def test_settings_of_a_bucket_come_first() -> None:
    configuration = Configuration(
        fs_s3a_access_key="one", fs_s3a_bucket_mine_access_key="two", fs_s3a_secret_key="three", fs_s3a_endpoint="host"
    )
    mine = S3Options.of_hadoop(Java, configuration, "s3a://mine/jobs/shards")
    other = S3Options.of_hadoop(Java, configuration, "s3://other/jobs/shards")
    assert mine is not None
    assert other is not None
    assert [each.access_key and each.access_key.reveal() for each in (mine, other)] == ["two", "one"]
    assert mine.secret_key == other.secret_key
    assert S3Options.of_hadoop(Java, configuration, "hdfs:///jobs/shards") is None
