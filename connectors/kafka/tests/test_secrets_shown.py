"""Secrets among the driver's own properties show in no explanation, no picture and no text of a job that holds them."""

from __future__ import annotations

import logging
from typing import Any

import headrace as hr
import pytest
from headrace.plan.explain import plan_as_mermaid, plan_as_text
from headrace.plan.graph import Plan

SECRET = "principal=me s3same-0pen"


def plan_with(name: str) -> Plan:
    conf = {name: hr.Secret(SECRET), "client.rack": "rack-17"}
    login: dict[str, Any] = {
        "servers": "localhost:9092",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "connect_timeout": "300 ms",
        "conf": conf,
    }
    stream = hr.stream("test", "shown").from_kafka(topic="in", format="json", schema={"n": "int64"}, **login)
    job: hr.Job = stream.where("n > 1").to_kafka(topic="out", **login)
    return job.plan()


@pytest.fixture(params=["sasl.oauthbearer.config", "ssl.key.password", "sasl.jaas.config"])
def plan(request: pytest.FixtureRequest) -> Plan:
    try:
        return plan_with(request.param)
    except hr.OptionError:
        return plan_without_mechanism(request.param)


def plan_without_mechanism(name: str) -> Plan:
    """Where the option ``sasl_mechanism`` has no OAUTHBEARER of its own, the driver's property says it."""
    conf: dict[str, Any] = {name: hr.Secret(SECRET), "client.rack": "rack-17"}
    servers = {"servers": "localhost:9092", "security_protocol": "SSL", "connect_timeout": "300 ms", "conf": conf}
    stream = hr.stream("test", "shown").from_kafka(topic="in", format="json", schema={"n": "int64"}, **servers)
    job: hr.Job = stream.where("n > 1").to_kafka(topic="out", **servers)
    return job.plan()


def shown_of(plan: Plan) -> dict[str, str]:
    from headrace_console.picture import plan_as_svg

    return {
        "text": plan_as_text(plan),
        "wide text": plan_as_text(plan, width=1000),
        "mermaid": plan_as_mermaid(plan),
        "picture": plan_as_svg(plan),
        "repr": repr(plan) + "".join(repr(node) for node in plan.nodes.values()),
        "definitions": repr(plan.state_definitions) + repr(plan.output_digests),
        "settings": "".join(repr(node.source.settings) for node in plan.sources.values()),
    }


def test_nothing_that_is_shown_holds_it(plan: Plan) -> None:
    found = shown_of(plan)
    assert "rack-17" in found["wide text"], "other properties are shown"
    for what, text in found.items():
        for part in (SECRET, "s3same"):
            assert part not in text, what


def test_no_error_and_no_log_holds_it(plan: Plan, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody listens there: the driver says so in its own words."""
    caplog.set_level(logging.DEBUG)
    [node] = plan.sources.values()
    with pytest.raises(hr.HeadraceError) as caught:
        node.source.queues()
    node.source.close()
    assert "s3same" not in str(caught.value) + repr(caught.value) + caplog.text
