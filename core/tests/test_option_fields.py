"""The order of options, which is that of positional arguments, and how defaults are shown."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import headrace as hr
import pytest
from headrace.interfaces.settings import describe_options, format_duration, option_fields, parse_duration


class FolderSettings(hr.SinkSettings, frozen=True, kw_only=True):
    path: Annotated[str, hr.option("where to write")]
    batch_size: Annotated[int, hr.option("another default", ge=1)] = 7
    part_bytes: Annotated[int, hr.option("size of a part")] = 128 * 1024**2


def test_own_options_come_before_inherited_ones() -> None:
    names = [field.encode_name for field in option_fields(FolderSettings)]
    assert names[:2] == ["path", "part_bytes"]
    assert set(names[2:]) == set(hr.SinkSettings.__struct_fields__)


def test_positional_arguments_of_a_verb_follow_that_order() -> None:
    from headrace.jobs.given_options import split_options

    assert split_options(FolderSettings, "folder", ["alerts"], {}) == ({"path": "alerts"}, {})


def test_defaults_are_shown_as_a_user_would_write_them() -> None:
    shown = {option.name: option for option in describe_options(FolderSettings)}
    assert shown["path"].required
    assert shown["path"].default is None
    assert shown["part_bytes"].default == "128 MiB"
    assert shown["flush_interval"].default == "1 s"
    assert shown["retry_backoff"].default == "100 ms"
    assert shown["batch_size"].default == "7"


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("0 s", timedelta(0)),
        ("3 us", timedelta(microseconds=3)),
        ("1 s 500 ms", timedelta(seconds=1.5)),
        ("1 h 30 min", timedelta(hours=1.5)),
        ("2 d 1 s", timedelta(days=2, seconds=1)),
    ],
)
def test_durations_are_written_as_they_are_read(text: str, duration: timedelta) -> None:
    assert format_duration(duration) == text
    assert parse_duration(text) == duration
