"""What ``headrace lint`` says of secrets that stand in a SQL text in clear."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from headrace_console.app import app
from headrace_sql import SqlSession
from headrace_sql.api import SqlLanguage, sql
from headrace_sql.compiling.clear_secrets import clear_secrets
from typer.testing import CliRunner

SOURCE = (
    "CREATE TABLE s (a INT, token STRING) WITH ('connector' = 'filesystem', 'path' = 'rows.ndjson', 'format' = 'json');"
)
TEXT = f"""{SOURCE}
CREATE TABLE t (a INT) WITH (
  OPTIONS
);
INSERT INTO t SELECT a FROM s WHERE token <> 'hunter2';"""  # noqa: S608  # a text of this test
MYSQL = "'connector' = 'jdbc', 'url' = 'jdbc:mysql://db/shop', 'table-name' = 't', 'username' = 'me',\n  'password' = "
WEB = "'connector' = 'http', 'url' = 'https://hooks.example/a', "


def notices(tmp_path: Path, options: str, **variables: str) -> list[str]:
    path = tmp_path / "job.sql"
    path.write_text(TEXT.replace("OPTIONS", options))
    found = SqlLanguage().lint(str(path), variables)
    assert not [each for each in found if "hunter2" in each]
    return found


def where(tmp_path: Path, options: str, **variables: str) -> list[str]:
    return [each.partition(" holds ")[0] for each in notices(tmp_path, options, **variables)]


@pytest.mark.parametrize("place", ["${DB_PASSWORD}", "${file:/run/secrets/db}"])
def test_a_place_is_no_secret(tmp_path: Path, place: str) -> None:
    assert notices(tmp_path, MYSQL + f"'{place}'") == []


def test_an_option_that_is_a_secret(tmp_path: Path) -> None:
    (said,) = notices(tmp_path, MYSQL + "'hunter2'")
    assert said == (
        "line 4: option 'password' of 't' holds a secret in clear; write '${NAME}' or '${file:/run/secrets/…}', which is read "
        "where the secret is used"
    )


@pytest.mark.parametrize("value", ["hunter2", "it''s hunter2"])
def test_quotes_in_a_secret(tmp_path: Path, value: str) -> None:
    assert where(tmp_path, MYSQL + f"'{value}'") == ["line 4: option 'password' of 't'"]


def test_a_secret_that_a_variable_gives_is_not_in_the_file(tmp_path: Path) -> None:
    assert notices(tmp_path, MYSQL + "'${DB_PASSWORD}'", DB_PASSWORD="sesame") == []


def test_options_that_the_connector_declares_and_headers(tmp_path: Path) -> None:
    options = (
        WEB
        + "'signature-key' = 'hunter2', 'secret-path' = 'hunter2',\n'headers.X-Team' = 'a', 'headers.Cookie' = 'hunter2'"
    )
    assert where(tmp_path, options) == [
        "line 3: option 'signature-key' of 't'",
        "line 3: option 'secret-path' of 't'",
        "line 4: option 'headers.Cookie' of 't'",
    ]


def test_a_password_in_an_address() -> None:
    text = "CREATE TABLE t (a INT) WITH ('connector' = 'jdbc',\n'url' = 'jdbc:mysql://me:hunter2@db/shop');"
    (said,) = clear_secrets(text, text, "flink")
    assert (
        said
        == "line 2: option 'url' of 't' holds an address with a password in clear; give user and password by options of their own"
    )


def test_a_catalog() -> None:
    text = "CREATE CATALOG shop WITH ('type' = 'jdbc',\n'username' = 'me', 'password' = 'hunter2');"
    (said,) = clear_secrets(text, text, "flink")
    assert said.startswith("line 2: option 'password' of 'shop' holds a secret in clear; ")
    assert "hunter2" not in said


def test_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "job.sql"
    text = TEXT.replace("OPTIONS", MYSQL + "'${DB_PASSWORD}'")
    path.write_text(text.replace("INTO t", "INTO t /*+ OPTIONS('password' = 'hunter2') */"))
    assert [each.partition(" holds ")[0] for each in SqlLanguage().lint(str(path), {})] == [
        "line 6: option 'password' of the hint behind 't'"
    ]


def test_lint_strict_refuses_a_secret_in_clear(tmp_path: Path) -> None:
    path = tmp_path / "job.sql"
    path.write_text(TEXT.replace("OPTIONS", MYSQL + "'hunter2'"))
    assert CliRunner().invoke(app, ["lint", str(path)]).exit_code == 0
    strict = CliRunner().invoke(app, ["lint", "--strict", str(path)])
    assert strict.exit_code == 2
    assert "option 'password' of 't' holds a secret in clear" in strict.output
    path.write_text(TEXT.replace("OPTIONS", MYSQL + "'${DB_PASSWORD}'"))
    good = CliRunner().invoke(app, ["lint", "--strict", str(path)])
    assert good.exit_code == 0, good.output


def test_a_place_is_looked_up_where_the_secret_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "hunter2")
    job = sql(TEXT.replace("OPTIONS", MYSQL + "'${DB_PASSWORD}'"), session=SqlSession())
    (settings,) = (cast(Any, node.sink).settings for node in job.sink_nodes)
    assert settings.password.reveal() == "hunter2"
    monkeypatch.setenv("DB_PASSWORD", "other")
    assert settings.password.reveal() == "other"
