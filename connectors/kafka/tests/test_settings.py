"""Options that would give a secret away are refused before anything is connected."""

from __future__ import annotations

from typing import Any

import pytest
from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import Secret
from headrace_kafka.settings import KafkaSourceSettings

PASSWORD = "open sesame"


def settings(**options: Any) -> KafkaSourceSettings:
    return KafkaSourceSettings.of({"topic": "t", **options}, plugin="kafka")


def login(servers: str, **more: Any) -> dict[str, Any]:
    plain = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "username": "u", "password": PASSWORD}
    return {"servers": servers, **plain, **more}


@pytest.mark.parametrize(
    "servers", ["kafka1:9092", "localhost:9092,10.0.0.7:9092", "127.0.0.1.example.org:9092", "[::2]:9092"]
)
def test_password_does_not_go_over_a_network_as_it_is(servers: str) -> None:
    with pytest.raises(OptionError, match="sends the password unencrypted") as caught:
        settings(**login(servers))
    assert caught.value.option == "security_protocol"
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        login("localhost:9092"),
        login("127.0.0.1:9092, [::1]:9093"),
        login("PLAINTEXT://localhost:9092"),
        login("kafka1:9092", plaintext_login=True),
        login("kafka1:9092", sasl_mechanism="SCRAM-SHA-256"),
        login("kafka1:9092", security_protocol="SASL_SSL"),
    ],
)
def test_password_that_is_safe_or_allowed(options: dict[str, Any]) -> None:
    assert settings(**options).password == Secret(PASSWORD)


@pytest.mark.parametrize(
    "name",
    [
        "ssl.key.password",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.client.secret",
        "sasl.jaas.config",
        "sasl_oauth_token_provider",
    ],
)
def test_secrets_among_further_properties_must_be_marked(name: str) -> None:
    with pytest.raises(OptionError, match="holds a secret and would be shown in logs") as caught:
        settings(servers="localhost:1", conf={name: PASSWORD})
    assert PASSWORD not in str(caught.value)
    assert PASSWORD not in repr(settings(servers="localhost:1", conf={name: Secret(PASSWORD)}))


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250])
def test_names_of_instances_that_brokers_refuse(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        settings(servers="localhost:9092", instance_id=name)
    assert caught.value.option == "instance_id"


@pytest.mark.parametrize("name", ["a", "...", "host-1.zone_b", "x" * 249])
def test_names_of_instances(name: str) -> None:
    assert settings(servers="localhost:9092", instance_id=name).instance_id == name
