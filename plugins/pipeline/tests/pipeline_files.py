"""Pipeline files that tests write, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from headrace_pipeline import PipelineError, pipeline

Write = Callable[[str], Path]


def error_of(path: Path, **variables: str) -> str:
    """Return the message of what is wrong with a file, without the directory."""
    with pytest.raises(PipelineError) as caught:
        pipeline(path, variables=variables)
    return str(caught.value).replace(f"{path.parent}/", "")


def text_of(text: str) -> str:
    return dedent(text).lstrip("\n")
