"""The options of SET: those that mean something here, and Flink's others, which must not be taken in silence."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.foundation.errors import OptionError, did_you_mean

#: ORDER BY without LIMIT, of columns that are no time: the rows come when the input ends. Flink's own tests set it.
AT_END = "__table.exec.sort.non-temporal.enabled__"
#: Options of what happens to rows that do not fit the columns of a sink's table, with their values; the first is the default.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "table.exec.sink.not-null-enforcer": ("ERROR", "DROP"),
    "table.exec.sink.type-length-enforcer": ("IGNORE", "TRIM_PAD", "ERROR"),
    "table.exec.sink.nested-constraint-enforcer": ("IGNORE", "ROWS", "ROWS_AND_COLLECTIONS"),
    "table.exec.sink.require-on-conflict": ("TRUE", "FALSE"),
    "table.exec.source.cdc-events-duplicate": ("FALSE", "TRUE"),
    AT_END: ("FALSE", "TRUE"),
}
#: Options that mean something here.
KNOWN = (
    "table.exec.emit.early-fire.enabled", "table.exec.emit.early-fire.delay", "table.exec.emit.late-fire.enabled",
    "table.exec.emit.late-fire.delay", "table.exec.emit.allow-lateness", "table.exec.state.ttl", "pipeline.name",
    "table.exec.source.idle-timeout", "table.local-time-zone", *CHOICES,
)  # fmt: skip
#: Options of Flink's that would change results, with the values that are as it is here.
_FIXED: Mapping[str, tuple[str, ...]] = {
    "table.exec.legacy-cast-behaviour": ("DISABLED",),
    "table.exec.sink.rowtime-inserter": ("ENABLED",),
    "table.sql-dialect": ("DEFAULT",),
    "execution.runtime-mode": ("STREAMING",),
}
_TABLE = (
    "mini-batch.enabled", "mini-batch.allow-latency", "mini-batch.size", "resource.default-parallelism", "sink.upsert-materialize",
    "sink.upsert-materialize-strategy.type", "sink.keyed-shuffle",
    "deduplicate.insert-update-after-sensitive-enabled",
    "deduplicate.mini-batch.compact-changes-enabled", "rank.topn-cache-size", "window-agg.buffer-size-limit",
    "interval-join.min-cleanup-interval", "simplify-operator-name-enabled", "uid.generation", "uid.format",
    "legacy-transformation-uids", "operator-fusion-codegen.enabled", "disabled-operators", "shuffle-mode", "spill-compression.enabled",
    "spill-compression.block-size", "sort.default-limit", "sort.async-merge-enabled", "sort.max-num-file-handles",
    "local-hash-agg.adaptive.enabled", "local-hash-agg.adaptive.sampling-threshold",
    "local-hash-agg.adaptive.distinct-value-rate-threshold",
    "async-lookup.buffer-capacity", "async-lookup.timeout", "async-lookup.output-mode", "async-lookup.key-ordered-enabled",
    "async-scalar.max-concurrent-operations", "async-scalar.timeout", "async-scalar.retry-strategy", "async-scalar.retry-delay",
    "async-scalar.max-attempts", "async-state.enabled", "unbounded-over.version", "delta-join.cache-enabled", "delta-join.left.cache-size",
    "delta-join.right.cache-size", "iceberg.use-v2-sink",
)  # fmt: skip
_NO_EFFECT = (
    *(f"table.exec.{name}" for name in _TABLE), "table.dml-sync", "table.plan.compile.catalog-objects", "table.plan.force-recompile",
    "table.plan.restore.catalog-objects", "table.generated-code.max-length", "table.dynamic-table-options.enabled",
    "table.builtin-catalog-name", "table.builtin-database-name", "table.column-expansion-strategy", "table.display.max-column-width",
    "table.resources.download-dir", "table.rtas-ctas.atomicity-enabled",
)  # fmt: skip
#: Flink has hundreds of these: of how a job is run, not of what it gives.
_RUNTIME = (
    "table.optimizer.", "parallelism.", "execution.", "state.", "taskmanager.", "jobmanager.", "rest.", "sql-client.", "restart-strategy",
    "metrics.", "env.", "pipeline.", "cluster.", "web.", "python.", "high-availability", "kubernetes.", "yarn.", "job.", "io.", "fs.",
)  # fmt: skip


def check(key: str, value: str) -> str | None:
    """Return a notice when an option has no effect here, None when it means something. Raises OptionError for others."""
    if key in CHOICES and value.upper() not in CHOICES[key]:
        raise OptionError(
            f"{key} = {value!r} is not known", hint=did_you_mean(value.upper(), CHOICES[key], known="values")
        )
    if key in KNOWN:
        return None
    fixed = _FIXED.get(key)
    if fixed is not None:
        if value.upper() not in fixed:
            raise OptionError(
                f"{key} = {value!r} is not supported: it would change the results",
                hint=f"{fixed[0]} is the only supported value",
            )
        return f"SET {key!r} has no effect here: it is always {fixed[0]}"
    if key in _NO_EFFECT or key.startswith(_RUNTIME):
        return f"SET {key!r} has no effect here: it is a matter of Flink's own runtime"
    raise OptionError(
        f"unknown option {key!r}", hint=did_you_mean(key, [*KNOWN, *_FIXED, *_NO_EFFECT], known="options")
    )


def choice(options: Mapping[str, str], key: str) -> str:
    """Return the value of one of ``CHOICES`` that holds, in capital letters."""
    return options.get(key, CHOICES[key][0]).upper()
