"""What headrace-pipeline offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_languages() -> Mapping[str, str]:
    # A language is found by the suffix of the file.
    return dict.fromkeys(("yaml", "yml"), "headrace_pipeline.api:PipelineLanguage")


@hookimpl
def headrace_operators() -> Mapping[str, str]:
    return {"parse_format": "headrace_pipeline.parse_format:ParseFormat"}
