"""The language: what ``headrace run pipeline.yaml`` calls."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import headrace as hr
from headrace.foundation.errors import JobError

from headrace_pipeline.case_jobs import jobs_of
from headrace_pipeline.clear_secrets import clear_secrets
from headrace_pipeline.compiling import PipelineFile

#: A file is a pipeline if one of these begins a line. It may contain errors: they are reported when it is compiled.
_PIPELINE_KEY = re.compile(rb"""^["']?(?:sources|steps|sinks)["']?[ \t]*:""", re.MULTILINE)


def pipeline(path: str | os.PathLike[str], *, variables: Mapping[str, str] | None = None) -> hr.Job:
    """Return the job of a pipeline file. ``variables`` are values of its ``${NAME}``, before the environment.

    Raises PipelineError, a JobError, with file, line and column, before anything is read.
    """
    return PipelineFile.of(Path(path), variables or {}).job()


class PipelineLanguage(hr.Language):
    """Pipelines in YAML, for the console and the server."""

    suffixes = (".yaml", ".yml")

    @classmethod
    def is_job(cls, content: bytes) -> bool:
        """Return whether a YAML file is a pipeline: rules, settings and others have the same suffix."""
        return _PIPELINE_KEY.search(content) is not None

    def job(self, source: str | os.PathLike[str], **options: Any) -> hr.Job:
        return pipeline(source, **options)

    def table(self, name: str, **options: Any) -> NoReturn:
        raise JobError("pipelines cannot define tables", hint="use headrace.table in SQL texts")

    def register(self, name: str, data: Any, **options: Any) -> NoReturn:
        raise JobError("pipelines cannot read frames of Python", hint="use headrace.register in SQL texts")

    def lint(self, path: str, parameters: Mapping[str, str]) -> list[str]:
        file = PipelineFile.of(Path(path), parameters)
        file.job().plan()
        for _ in jobs_of(Path(path), parameters):
            pass  # its columns and values fit the pipeline
        return clear_secrets(file.root)
