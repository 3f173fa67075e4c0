"""The keys of a pipeline file: which are allowed, which are required, and the texts of the reference in the docs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace_pipeline.document import Section


@dataclass(frozen=True, slots=True)
class Key:
    """One key: the type of its value, and its meaning."""

    name: str
    form: str
    meaning: str
    required: bool = False


PIPELINE = (
    Key("name", "text", "of the job: letters, digits, `-` and `_`. Positions in sinks belong to it", required=True),
    Key("namespace", "text", "of the job; default: `pipelines`"),
    Key("description", "text", "for readers"),
    Key("variables", "names and defaults", "values of `${NAME}` that neither `--set` nor the environment gives"),
    Key("functions", "names and paths", "functions of your own for expressions: `package.module:function`"),
    Key("sources", "names and sources", "where rows come from", required=True),
    Key("steps", "list of steps", "what is done to them, from top to bottom"),
    Key("sinks", "names and sinks", "where rows go", required=True),
    Key("dead_letters", "a sink", "where bad records go; default: files beside the checkpoint"),
    Key("cases", "list of cases", "tests of the pipeline, for `headrace test`"),
    Key("bad_records", "`dead_letters` or `stop`", "`stop`: the first bad record stops the job"),
)
SOURCE = (
    Key("connector", "text", "the source's plug-in: what stands behind `from_` in Python", required=True),
    Key("format", "text", "how bodies become columns; its options stand beside it"),
    Key(
        "schema",
        "columns and types",
        "types as in Python and SQL: `string`, `BIGINT`, `decimal(10, 2)`, `array<string>`",
    ),
    Key("metadata", "columns and header fields", "columns from the record's header: `partition: queue`"),
    Key("start", "`earliest`, `latest` or a time", "where queues without a checkpoint begin"),
    Key("key", "column or list", "the primary key, of sources and formats whose rows change"),
    Key("repeats", "`true` or `false`", "whether changes may come again"),
    Key("normalize", "`true` or `false`", "`false`: a later step normalises the changes"),
    Key("state_ttl", "duration", "how long a row of a key is kept for that"),
)
SINK = (
    Key("connector", "text", "the sink's plug-in: what stands behind `to_` in Python", required=True),
    Key("from", "name", "the step, output or source that it writes; default: the last step"),
)
STEP = (
    Key("from", "name", "the source, step or output that the step reads; default: the step before"),
    Key("as", "name", "the name of its result, for a later `from`"),
)
CASE = (
    Key("name", "text", "what the case shows", required=True),
    Key("in", "names and rows or lines", "what each source gives: a list of rows, or lines of text", required=True),
    Key("out", "names and rows", "the rows that each sink gets, in any order; a sink that is not named gets none"),
    Key("dead_letters", "list, or a number", "the bad records; default: none"),
    Key("variables", "names and values", "values of `${NAME}` in this case"),
)
LETTER = (
    Key("reason", "text", "a part of the reason"),
    Key("line", "text", "the record, where it could not be decoded"),
    Key("row", "columns and values", "columns of the row, where it could be decoded; others are not compared"),
    Key("origin", "text", "the source or verb that refused the record"),
)


def check_section(section: Section, keys: Sequence[Key], *, of: str) -> None:
    """Raise PipelineError for an unknown key, and for a required one that is missing."""
    section.check_keys([key.name for key in keys], of=of)
    for key in keys:
        if key.required:
            section.required(key.name, of=of)
