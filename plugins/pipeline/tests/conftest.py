"""What tests of pipelines share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pipeline_files import Write, text_of


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a pipeline file into the test's directory, in which the test runs."""
    monkeypatch.chdir(tmp_path)

    def written(text: str) -> Path:
        path = tmp_path / "pipeline.yaml"
        path.write_text(text_of(text), encoding="utf-8")
        return path

    return written
