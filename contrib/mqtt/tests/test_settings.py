"""Options that do not fit, without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import OptionError
from headrace.testing import MemorySource
from headrace_mqtt import MqttSinkSettings, MqttSourceSettings


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topic": "a/#/b"}, "is not a topic filter"),
        ({"topic": "a/b+"}, "is not a topic filter"),
        ({"topic": " , "}, "list of topics is empty"),
        (
            {"topic": "a", "host": "broker.example.org", "user": "u", "password": "p"},
            "password would be sent unencrypted",
        ),
        ({"topic": "a", "password": "p"}, "together with user"),
        ({"topic": "a", "ssl_key": "k"}, "together with ssl_certificate"),
        ({"topic": "a", "port": 70_000}, "is not a port"),
        ({"topic": "a", "keep_alive": 0}, "is not between 1 s and 18 h"),
        ({"topic": "a", "qos": 2}, "unusable value 2"),
    ],
)
def test_bad_options_of_sources(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        MqttSourceSettings.of({"buffer": str(tmp_path), **options}, plugin="mqtt")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "either topic or topic_column"),
        ({"topic": "a", "topic_column": "b"}, "either topic or topic_column"),
        ({"topic": "a/+"}, "one of the characters"),
    ],
)
def test_bad_options_of_sinks(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        MqttSinkSettings.of(options, plugin="mqtt")


def test_columns_of_topics_are_checked_when_the_job_is_built() -> None:
    stream = hr.stream("tests", "out").from_(MemorySource({}), format="json", schema={"place": "string", "n": "int64"})
    with pytest.raises(OptionError, match="did you mean 'place'"):
        stream.to_mqtt(topic_column="plaec")
    with pytest.raises(OptionError, match="a topic must be text"):
        stream.to_mqtt(topic_column="n")
