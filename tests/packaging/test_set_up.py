"""What ``make setup`` installs comes from where pip would take it, whoever installs it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.packaging import set_up
from tests.packaging.set_up import names_of, settings_of_pip, words_for_uv

LISTED = """\
:env:.find-links='/opt/wheels'
:env:.disable-pip-version-check='1'
global.index-url='https://packages.test/simple'
global.extra-index-url='\\nhttps://one.test/simple\\nhttps://two.test/simple'
global.timeout='15'
global.find-links='/old/wheels'
install.timeout='180'
freeze.timeout='1'
"""


def test_settings_of_pip_are_those_that_count_for_installing() -> None:
    assert settings_of_pip(LISTED) == {
        "index-url": "https://packages.test/simple",
        "extra-index-url": "\nhttps://one.test/simple\nhttps://two.test/simple",
        "timeout": "180",
        "find-links": "/opt/wheels",
        "disable-pip-version-check": "1",
    }
    assert settings_of_pip("") == {}


def test_uv_takes_packages_from_where_pip_does() -> None:
    assert words_for_uv(settings_of_pip(LISTED)) == {
        "UV_DEFAULT_INDEX": "https://packages.test/simple",
        "UV_INDEX": "https://one.test/simple https://two.test/simple",
        "UV_HTTP_TIMEOUT": "180",
        "UV_FIND_LINKS": "/opt/wheels",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert words_for_uv({"find-links": "/a /b", "trusted-host": "one.test two.test"}) == {
        "UV_FIND_LINKS": "/a,/b",
        "UV_INSECURE_HOST": "one.test two.test",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


@pytest.mark.parametrize("setting", ["no-binary", "constraint", "target", "keyring-provider", "pre"])
def test_a_setting_that_uv_has_no_word_for_leaves_it_to_pip(setting: str) -> None:
    assert words_for_uv({"index-url": "https://packages.test/simple", setting: "x"}) is None


def test_names_are_those_of_the_packages() -> None:
    assert names_of(["core", "plugins/light"]) == ["headrace", "headrace-light"]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Returns the commands that would run: the last name of the program, and the words that choose packages."""

    def run(listed: str, *, failing: str = "") -> list[str]:
        commands: list[str] = []

        def record(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
            text = " ".join(command)
            if "pip config" in text:
                return subprocess.CompletedProcess(command, 0, listed, "")
            assert options["check"]
            program = "uv" if os.path.basename(command[0]) == "uv" else "pip"
            if program == "uv" and "--offline" not in command:
                assert options["env"]["UV_INDEX_STRATEGY"] == "unsafe-best-match"
            commands.append(f"{program} … {command[-1]}")
            if failing and program == "uv" and command[-1] == failing:
                raise subprocess.CalledProcessError(2, command)
            return subprocess.CompletedProcess(command, 0, "", "")

        monkeypatch.setattr(subprocess, "run", record)
        set_up.fill(["core", "plugins/light"])
        return commands

    return run


def test_uv_installs_what_the_packages_need(ran: Callable[..., list[str]]) -> None:
    assert ran("") == ["pip … uv", "uv … setuptools", "uv … ./plugins/light", "uv … headrace-light"]


BY_PIP = ["pip … requirements-docs.txt", "uv … ./plugins/light", "pip … headrace-light"]


def test_pip_installs_where_its_settings_ask_for_what_uv_cannot_do(ran: Callable[..., list[str]]) -> None:
    assert ran("global.no-binary=':all:'\n") == ["pip … uv", *BY_PIP]


def test_pip_installs_where_uv_fails(ran: Callable[..., list[str]]) -> None:
    assert ran("", failing="setuptools") == ["pip … uv", "uv … setuptools", *BY_PIP]
