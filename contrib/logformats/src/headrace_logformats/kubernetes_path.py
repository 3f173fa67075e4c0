"""The verb ``kubernetes_path``: it finds the pod and the container of a log by its path."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import headrace as hr
import polars as pl
from headrace.foundation.errors import did_you_mean

_FIELDS = hr.Schema.of(
    {
        "namespace": "string",
        "pod": "string",
        "pod_uid": "string",
        "container": "string",
        "restart_count": "int32",
    }
)
#: /var/log/pods/NAMESPACE_POD_UID/CONTAINER/N.log, and the names of its rotated files.
_PODS = (
    r"(?:^|/)(?P<namespace>[^/_]+)_(?P<pod>[^/_]+)_(?P<pod_uid>[^/_]+)"
    r"/(?P<container>[^/]+)/(?P<restart_count>[0-9]{1,9})\.log(?:\.[^/]*)?$"
)
#: /var/log/containers/POD_NAMESPACE_CONTAINER-ID.log
_CONTAINERS = r"(?:^|/)(?P<pod>[^/_]+)_(?P<namespace>[^/_]+)_(?P<container>[^/]+)-[0-9a-f]{64}\.log$"


class KubernetesPath(hr.OperatorSpec):
    """Adds ``namespace``, ``pod``, ``pod_uid``, ``container`` and ``restart_count``, taken from a path, as columns.

    It knows the paths of ``/var/log/pods`` and ``/var/log/containers``. The latter give NULL for ``pod_uid`` and
    ``restart_count``. Other paths give NULL for all columns.

    Args:
        on: the column of paths. ``metadata={"path": "queue"}`` of ``from_file`` makes one.
    """

    name = "kubernetes_path"
    keeps_columns = True
    takes_upserts = True

    def __init__(self, *, on: str = "path") -> None:
        self.on = on

    def output_schema(self, schema: hr.Schema | None, output: str = "") -> hr.Schema | None:
        """Return the input columns, followed by the fields. Raises PlanError if they do not fit together."""
        if schema is None:
            raise hr.PlanError(
                "the columns are not known when the job is built",
                plugin=self.name,
                hint="declare them: map(function, schema={…})",
            )
        if self.on not in schema or schema[self.on] != pl.String():
            hint = "from_file(…, metadata={'path': 'queue'}) makes it, or name another: kubernetes_path(on=…)"
            if self.on not in schema:
                hint = did_you_mean(self.on, schema, known="columns") + "; " + hint
            raise hr.PlanError(f"there is no column {self.on!r} of type string", plugin=self.name, hint=hint)
        taken = [name for name in _FIELDS if name in schema]
        if taken:
            raise hr.PlanError(
                f"{taken[0]!r} is a column already", plugin=self.name, hint="rename the column before this verb"
            )
        return hr.Schema({**schema, **_FIELDS}, json_columns=schema.json_columns)

    def required_columns(self, wanted: Collection[str] | None, schema: hr.Schema) -> Collection[str] | None:
        """Return the column of paths, and the requested columns that are not fields."""
        if wanted is None:
            return None
        return [self.on, *(name for name in wanted if name in schema and name != self.on)]

    def open(self, schema: hr.Schema | None) -> hr.Operator:
        return _Running(self.on)

    def describe(self) -> str:
        return f"of {self.on}"


class _Running(hr.Operator):
    def __init__(self, on: str) -> None:
        self._on = on

    def process(self, batch: hr.Batch) -> Iterable[hr.Batch]:
        frame = batch.frame
        # A queue is one file, so most batches have a single path.
        paths = frame.select(pl.col(self._on).unique()).drop_nulls()
        path = pl.col(self._on)
        pods, links = path.str.extract_groups(_PODS).alias("pods"), path.str.extract_groups(_CONTAINERS).alias("links")
        found = paths.with_columns(pods, links).select(
            path,
            *(
                pl.coalesce(pl.col("pods").struct.field(name), pl.col("links").struct.field(name)).alias(name)
                for name in ("namespace", "pod", "container")
            ),
            pl.col("pods").struct.field("pod_uid"),
            pl.col("pods").struct.field("restart_count").cast(pl.Int32),
        )
        joined = frame.join(found, on=self._on, how="left", maintain_order="left")
        return [batch.with_frame(joined.select(*frame.columns, *_FIELDS))]
