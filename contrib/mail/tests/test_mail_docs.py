"""The page shows the options as they are declared."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.interfaces.settings import describe_options
from headrace_mail import MailSinkSettings

PAGE = (Path(__file__).parents[3] / "docs" / "connectors" / "mail.md").read_text(encoding="utf-8")


def test_options() -> None:
    known = {option.name: option for option in describe_options(MailSinkSettings)}
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
    for name, default, description in rows:
        option = known[name]
        assert (default, description) == ("required" if option.required else f"`{option.default}`", option.description)
    common = {"max_cached_rows", "max_cached_bytes", "retry_timeout", "retry_backoff", "retry_backoff_max"}
    assert {name for name, _, _ in rows} == set(known) - common
