"""Jobs as YAML files: sources, steps and sinks. Compiled to the plan that the Python DSL makes."""

from __future__ import annotations

from headrace.foundation.lazy_names import lazy_names

_MODULES = {
    "headrace_pipeline.api": ("PipelineLanguage", "pipeline"),
    "headrace_pipeline.errors": ("PipelineError",),
}
__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)
