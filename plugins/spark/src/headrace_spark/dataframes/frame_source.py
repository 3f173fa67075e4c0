"""A DataFrame of Spark as a source: every connector that Spark has. The Spark backend reads it; no other backend can."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NoReturn

from headrace.flow.messages import Queue
from headrace.foundation.errors import JobError, OptionError, did_you_mean
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.source import EARLIEST, Reader, Source, StartPosition

if TYPE_CHECKING:
    from headrace.flow.schema import Schema
    from headrace.interfaces.codec import Codec
    from headrace.plan.graph import Plan
    from pyspark.sql import DataFrame


class DataFrameSettings(Settings, frozen=True, kw_only=True):
    """Options of a DataFrame as a source."""

    frame: Annotated[object, option("the DataFrame to read, streaming or batch")]
    body: Annotated[str, option("with a format: the column that holds the bodies (binary or string)")] = "value"
    keep_order: Annotated[
        bool,
        option(
            "whether the rows of a micro-batch keep the order of their partitions in Spark; "
            "without it they are put in an order that depends on their values only"
        ),
    ] = False

    def validate(self) -> None:
        if not hasattr(self.frame, "mapInArrow"):
            raise OptionError(
                f"{type(self.frame).__name__} is not a DataFrame of Spark",
                plugin="dataframe",
                option="frame",
                hint="spark.readStream.format(…).load() or spark.read.format(…).load() gives one",
            )


def is_of_connect(frame: DataFrame) -> bool:
    """Return whether a DataFrame is one of Spark Connect: its server knows its columns and whether it is streaming."""
    return not hasattr(frame, "_jdf")


class DataFrameSource(Source):
    """Reads a DataFrame. Spark plans and reads it, so this object only describes it: it opens no queue itself."""

    Settings: ClassVar[type[Settings]] = DataFrameSettings

    def __init__(self, settings: DataFrameSettings) -> None:
        self.settings = settings
        self.body = settings.body
        self.keep_order = settings.keep_order
        #: None in worker processes: a DataFrame stays on the driver.
        self.frame: DataFrame | None = settings.frame  # type: ignore[assignment]
        #: Whether the job names a format, so that a column holds bodies.
        self.has_bodies = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "settings": None, "frame": None}

    def use_format(self, format: str | None, codec: Codec | None, schema: Schema | None) -> None:
        self.has_bodies = codec is not None

    def check(self) -> None:
        from pyspark.sql.types import BinaryType, StringType

        assert self.frame is not None
        if not self.has_bodies or is_of_connect(self.frame):  # asking for the types would be a call of the server
            return
        types = {field.name: field.dataType for field in self.frame.schema.fields}
        if self.body not in types:
            raise OptionError(
                f"the DataFrame has no column {self.body!r}, which must contain the bodies for the format",
                plugin="dataframe",
                option="body",
                hint=did_you_mean(self.body, list(types), known="columns"),
            )
        if not isinstance(types[self.body], BinaryType | StringType):
            raise OptionError(
                f"column {self.body!r} is {types[self.body].simpleString()}; bodies must be binary or string",
                plugin="dataframe",
                option="body",
            )

    def schema(self) -> Schema | None:
        """Return the columns of the DataFrame."""
        from headrace_spark.dataframes.frame_types import schema_from_spark

        assert self.frame is not None
        return schema_from_spark(self.frame.schema, "dataframe")

    def identity(self) -> Mapping[str, Any]:
        """Return nothing: Spark knows what a DataFrame reads, and the checkpoint belongs to it."""
        return {}

    def queues(self) -> Collection[Queue]:
        self._refuse()

    def open(self, queue: Queue, start: StartPosition = EARLIEST) -> Reader:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise JobError(
            "only Spark can read a DataFrame, so the job runs only on the Spark backend",
            plugin=self.node_name or "dataframe",
            hint="run it with backend='spark', or read the same data with a connector of headrace: from_file, from_kafka, …",
        )


def frames_of(plan: Plan) -> dict[str, DataFrameSource]:
    """Return the sources of a job that are DataFrames, by their ids."""
    return {name: node.source for name, node in plan.sources.items() if isinstance(node.source, DataFrameSource)}


def source(frame: DataFrame, *, body: str = "value", keep_order: bool = False) -> DataFrameSource:
    """Return a DataFrame of Spark as a source, for ``hr.stream(…).from_(source(df))``; the same as ``from_dataframe(df)``."""
    return DataFrameSource(DataFrameSettings(frame=frame, body=body, keep_order=keep_order))
