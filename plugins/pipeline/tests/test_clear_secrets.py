"""What ``headrace lint`` says of secrets that stand in a file in clear."""

from __future__ import annotations

import pytest
from headrace_console.app import app
from headrace_pipeline import PipelineError
from headrace_pipeline.api import PipelineLanguage
from pipeline_files import Write
from typer.testing import CliRunner

TEXT = """
    name: orders
    sources:
      orders: {connector: file, path: orders.ndjson, format: json, schema: {id: int64, token: string}}
    steps:
      - where: token <> 'hunter2'
    sinks:
      large:
        SINK
"""
MYSQL = "connector: mysql\n        host: db\n        database: shop\n        table: orders\n        user: me\n        password: "
WEB = "connector: http\n        url: https://hooks.example/a\n        "


def notices(write: Write, sink: str, **variables: str) -> list[str]:
    path = write(TEXT.replace("SINK", sink))
    found = PipelineLanguage().lint(str(path), variables)
    assert not [each for each in found if "hunter2" in each]
    return [each.replace(f"{path.parent}/", "") for each in found]


def where(write: Write, sink: str) -> list[str]:
    return [each.partition(" holds a secret in clear; ")[0].partition(", ")[2] for each in notices(write, sink)]


@pytest.mark.parametrize("place", ["${DB_PASSWORD}", "${file:/run/secrets/db}", '"${DB_PASSWORD}"'])
def test_a_place_is_no_secret(write: Write, place: str) -> None:
    assert notices(write, MYSQL + place) == []


@pytest.mark.parametrize("text", ["hunter2", '"hunter2"', "|\n          hunter2"])
def test_an_option_that_is_a_secret(write: Write, text: str) -> None:
    (said,) = where(write, MYSQL + text)
    assert said == "line 13: option 'password' of sink 'large'"


def test_a_secret_that_a_variable_gives_is_not_in_the_file(write: Write) -> None:
    assert notices(write, MYSQL + "${DB_PASSWORD}", DB_PASSWORD="hunter2") == []


def test_a_token_and_a_header(write: Write) -> None:
    assert where(write, WEB + "token: hunter2") == ["line 10: option 'token' of sink 'large'"]
    assert where(write, WEB + "headers: {x-team: a, cookie: hunter2}") == [
        "line 10: 'cookie' in option 'headers' of sink 'large'"
    ]


REFUSED = {
    "connector: kafka\n        topic: t\n        servers: k:9092\n        conf: {sasl.password: hunter2}": "holds a secret",
    "connector: elasticsearch\n        index: a\n        url: https://me:hunter2@db:9200": "user",
    "connector: http\n        url: https://me:hunter2@hooks.example/a": "user",
    WEB + "headers: {authorization: Bearer hunter2}": "token",
}  # fmt: skip


@pytest.mark.parametrize("sink", list(REFUSED))
def test_what_would_be_shown_in_plans_is_refused_by_the_plugin(write: Write, sink: str) -> None:
    with pytest.raises(PipelineError) as caught:
        notices(write, sink)
    assert REFUSED[sink] in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_default_of_a_variable(write: Write) -> None:
    text = TEXT.replace("sources:", "variables: {LEAST: 1, DB_PASSWORD: hunter2, API_TOKEN: null}\n    sources:", 1)
    found = PipelineLanguage().lint(str(write(text.replace("SINK", MYSQL + "${DB_PASSWORD}"))), {})
    assert [each.partition(", ")[2] for each in found] == [
        "line 2: the default of the variable 'DB_PASSWORD' holds a secret in clear; leave the default out"
    ]


def test_strict(write: Write) -> None:
    path = str(write(TEXT.replace("SINK", MYSQL + "hunter2")))
    done = CliRunner().invoke(app, ["lint", path])
    assert done.exit_code == 0
    assert "ok, 1 notice" in done.stdout
    strict = CliRunner().invoke(app, ["lint", "--strict", path])
    assert strict.exit_code == 2
    assert f"notice: {path}, line 13: option 'password' of sink 'large' holds a secret in clear" in strict.stdout
    clean = str(write(TEXT.replace("SINK", MYSQL + "${DB_PASSWORD}")))
    assert CliRunner().invoke(app, ["lint", "--strict", clean]).exit_code == 0
