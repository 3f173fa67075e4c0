"""Declared options: conversion, bounds, errors, help."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest
from headrace.foundation.errors import MissingPluginError, OptionError
from headrace.interfaces.hookspecs import hookimpl
from headrace.interfaces.registry import Registry
from headrace.interfaces.settings import Secret, Settings, describe_options, option, parse_duration, parse_size


class Example(Settings, frozen=True, kw_only=True):
    path: Annotated[str, option("where it is")]
    size_bytes: Annotated[int, option("how large", ge=1)] = 10
    wait: Annotated[timedelta, option("how long")] = timedelta(seconds=1)
    password: Annotated[Secret | None, option("the password")] = None
    mode: Annotated[Literal["a", "b"], option("which")] = "a"
    names: Annotated[list[str], option("several")] = []
    on: Annotated[bool, option("whether")] = False


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10 s", 10),
        ("1 min 30 s", 90),
        ("500ms", 0.5),
        ("2h", 7200),
        (3, 3),
        (0.25, 0.25),
        ("1 day", 86400),
        ("9 us", 9e-6),
    ],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_duration(text).total_seconds() == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "10", "10 parsecs", "s 10", "-3 s", True])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("64 MiB", 64 * 2**20), ("1GB", 10**9), ("12", 12), (7, 7), ("1.5 kb", 1500)]
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


def test_options_are_converted() -> None:
    made = Example.of({"path": "x", "size_bytes": "1 KiB", "wait": "2 min", "on": "true", "names": ["a"]})
    assert (made.size_bytes, made.wait, made.on, made.names) == (1024, timedelta(minutes=2), True, ["a"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "x", "sise_bytes": 1}, r"(?s)unknown option 'sise_bytes'.*plugin 'demo'.*did you mean 'size_bytes'"),
        ({}, "required option is missing.*option 'path'"),
        ({"path": "x", "size_bytes": 0}, "size_bytes"),
        ({"path": 5}, "option 'path'"),
        ({"path": "x", "mode": "c"}, "option 'mode'"),
        ({"path": "x", "wait": "soon"}, "not a duration"),
        ({"path": "x", "size_bytes": "many"}, "not a size"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Example.of(options, plugin="demo")


def test_a_wrong_choice_is_answered_with_the_choices() -> None:
    with pytest.raises(OptionError, match="unusable value 'hihg'") as raised:
        Example.of({"path": "x", "mode": "hihg"}, plugin="example")
    assert raised.value.hint is not None
    assert "a, b" in raised.value.hint


def test_secrets_show_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Example.of({"path": "x", "password": "hunter2"})
    assert "hunter2" not in repr(made)
    assert made.password is not None
    assert made.password.reveal() == "hunter2"
    with pytest.raises(OptionError) as caught:
        Example.of({"path": "x", "password": 1234567})
    assert "1234567" not in str(caught.value)


@pytest.mark.parametrize("option", ["size_bytes", "wait", "mode", "on"])
def test_a_secret_in_the_place_of_another_option_is_not_shown(option: str) -> None:
    with pytest.raises(OptionError) as caught:
        Example.of({"path": "x", option: "hunter2-sesame"}, plugin="demo")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__
    assert f"option '{option}'" in str(caught.value)


def test_a_secret_from_the_environment_is_looked_up_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Secret("${HEADRACE_TEST_SECRET}")
    assert b"hunter2" not in pickle.dumps(secret.__class__)
    with pytest.raises(OptionError, match="HEADRACE_TEST_SECRET is not set"):
        secret.reveal()
    monkeypatch.setenv("HEADRACE_TEST_SECRET", "hunter2")
    assert secret.reveal() == "hunter2"


def test_a_secret_from_a_file(tmp_path: Path) -> None:
    secret = Secret(f"${{file:{tmp_path}/password}}")
    with pytest.raises(OptionError, match="of a secret cannot be read: No such file"):
        secret.reveal()
    (tmp_path / "password").write_text("hunter2 \n")
    assert secret.reveal() == "hunter2 "
    assert "hunter2" not in repr(secret)


def test_a_secret_from_a_store_that_a_plug_in_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Vault:
        @staticmethod
        @hookimpl
        def headrace_secret_stores() -> dict[str, Callable[[str], str]]:
            return {"vault": {"team/db:main": "hunter2"}.__getitem__}

    registry = Registry([])
    registry.register(Vault, "vault-plugin")
    monkeypatch.setattr("headrace.interfaces.registry.default_registry", lambda: registry)
    assert Secret("${vault:team/db:main}").reveal() == "hunter2"
    with pytest.raises(MissingPluginError, match="no secret store 'vaults' is installed"):
        Secret("${vaults:team/db}").reveal()


def test_help_comes_from_the_declaration() -> None:
    found = {described.name: described for described in describe_options(Example)}
    assert list(found) == ["path", "size_bytes", "wait", "password", "mode", "names", "on"]
    assert found["path"].required
    assert found["path"].description == "where it is"
    assert found["mode"].type == "'a' | 'b'"
    assert found["wait"].type == "duration"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wait": "5 s"}, "'5 s' is of type str, not timedelta"),
        ({"wait": 5}, "5 is of type int, not timedelta"),
        ({"size_bytes": "1 KiB"}, "'1 KiB' is of type str, not int"),
        ({"size_bytes": 0}, "unusable value 0"),
        ({"password": "s3cr3t"}, "the value is of type str, not Secret"),
        ({"mode": "c"}, "unusable value 'c'"),
    ],
)
def test_options_that_the_class_itself_took_are_refused_where_of_would_convert_them(
    options: dict[str, object], message: str
) -> None:
    made = Example(path="x", **options)  # type: ignore[arg-type]
    with pytest.raises(OptionError) as caught:
        made.check_types(plugin="example")
    assert message in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_options_made_by_the_class_itself_are_taken_when_they_fit() -> None:
    Example(path="x", wait=timedelta(seconds=3), password=Secret("${X}"), names=["a"]).check_types()


def test_a_reference_to_the_environment_in_an_option_is_warned_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    monkeypatch.setenv("IS_SET", "x")
    Example.of({"path": "${NOT_SET}/x", "password": "${NOT_SET}"}, plugin="example")
    first, second = (record.getMessage() for record in caplog.records)
    assert "option path of example holds ${NOT_SET}, which is taken as it is" in first
    assert "option password of example names the environment variable NOT_SET, which is not set" in second
    caplog.clear()
    Example.of({"path": "${IS_SET}/x", "password": "key ${IS_SET}"}, plugin="example")
    assert [record.getMessage().partition(" of ")[0] for record in caplog.records] == ["option path", "option password"]
    caplog.clear()
    Example.of({"path": "x", "password": "${IS_SET}"}, plugin="example")
    assert caplog.records == []


class WithoutOne(Settings, frozen=True, kw_only=True):
    """Options of something that lacks one that others have."""

    absent: ClassVar[Mapping[str, str]] = {"speed": "it is always as fast as it can be"}
    seed: int = 0


def test_an_option_that_only_others_have_is_refused_with_the_reason() -> None:
    with pytest.raises(OptionError, match="no option 'speed' here: it is always as fast") as caught:
        WithoutOne.of({"speed": 3}, plugin="it")
    assert caught.value.option == "speed"
    assert WithoutOne.of({"seed": 3}).seed == 3
