"""Requests in the directory of a checkpoint: how the job that runs looks for them."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from headrace.runtime import control


class Handle:
    """Of a job that ends after so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def wait(self, timeout: timedelta | None = None) -> None:
        self.looks -= 1
        if self.looks >= 0:
            raise TimeoutError


@pytest.mark.parametrize("fails", [0, 1])
def test_a_request_that_could_not_be_taken_is_taken_later_though_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    (tmp_path / "a.request").touch()
    os.utime(tmp_path, (1.0, 1.0))
    tries: list[str] = []

    def do(_: Any, request: Path) -> None:
        tries.append(request.name)
        if len(tries) <= fails:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(control, "_do", do)
    handle: Any = Handle(looks=5)
    control._watch(handle, tmp_path)
    assert len(tries) == 1 + fails, "a directory in which nothing changes is not listed again"
