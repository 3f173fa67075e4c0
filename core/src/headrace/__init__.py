"""headrace: stream processing that installs with pip. The same job runs on Spark and in one light process.

    import headrace as hr

    job = (hr.stream("security", "suspicious-commands")
             .from_file("events/*.ndjson", format="json", schema={"host": "string", "cmdline": "string"})
             .where("lower(cmdline) LIKE '%curl%'")
             .to_file("alerts", format="json"))
    report = job.run()

Names are imported when they are first used, so that ``import headrace`` is quick and loads no plug-in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy_names import lazy_names

__version__ = "0.1.0"

_MODULES = {
    "headrace.dsl": ("stream", "Stream", "Pipeline", "Branches", "FunctionCatalog"),
    "headrace.jobs": ("Job", "job", "namespace"),
    "headrace.schema": ("Schema",),
    "headrace.settings": ("Settings", "Secret", "option"),
    "headrace.messages": (
        "Batch", "Bodies", "ChangeKind", "Checkpoint", "Position", "Queue", "QueueAdded", "QueueRemoved", "RawBatch",
        "ReadPosition", "Watermark", "Tick", "EndOfInput",
    ),
    "headrace.source": ("Source", "Reader", "GroupSource", "GroupListener", "Start", "StartAt", "EARLIEST", "LATEST"),
    "headrace.operator": (
        "Operator", "OperatorSpec", "RejectedRows", "renumber", "StatefulOperator", "StatefulSpec", "Changes",
    ),
    "headrace.keyed": ("KeyedStream", "WindowedStream"),
    "headrace.windows": ("tumbling", "sliding", "session", "cumulative", "emit", "Window", "Emit"),
    "headrace.sink": (
        "Sink", "IdempotentSink", "TransactionalSink", "SinkBatch", "SinkSettings", "StaleWriterError",
    ),
    "headrace.codec": ("Codec", "Decoder", "Encoder", "Decoded", "BadBody"),
    "headrace.functions": ("udf", "udtf", "udaf", "ScalarFunction", "TableFunction", "AggregateFunction"),
    "headrace.state_store": ("KeyedStateStore", "StateStore", "StoredVersion"),
    "headrace.backend": (
        "Backend", "JobHandle", "JobReport", "JobState", "JobStatus", "QueueStatus", "RunOptions",
    ),
    "headrace.hookspecs": ("hookimpl",),
    "headrace.language": ("sql", "table", "register", "Language"),
    "headrace.errors": (
        "HeadraceError", "JobError", "PlanError", "ExpressionError", "OptionError", "MissingPluginError",
        "PluginConflictError", "FunctionError", "CheckpointError", "RetriableError", "DataError",
        "BrokenQueueError", "JobFailedError",
    ),
}  # fmt: skip
__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)

if TYPE_CHECKING:
    from headrace.backend import Backend as Backend
    from headrace.backend import JobHandle as JobHandle
    from headrace.backend import JobReport as JobReport
    from headrace.backend import JobState as JobState
    from headrace.backend import JobStatus as JobStatus
    from headrace.backend import QueueStatus as QueueStatus
    from headrace.backend import RunOptions as RunOptions
    from headrace.codec import BadBody as BadBody
    from headrace.codec import Codec as Codec
    from headrace.codec import Decoded as Decoded
    from headrace.codec import Decoder as Decoder
    from headrace.codec import Encoder as Encoder
    from headrace.dsl import Branches as Branches
    from headrace.dsl import FunctionCatalog as FunctionCatalog
    from headrace.dsl import Pipeline as Pipeline
    from headrace.dsl import Stream as Stream
    from headrace.dsl import stream as stream
    from headrace.errors import BrokenQueueError as BrokenQueueError
    from headrace.errors import CheckpointError as CheckpointError
    from headrace.errors import DataError as DataError
    from headrace.errors import ExpressionError as ExpressionError
    from headrace.errors import FunctionError as FunctionError
    from headrace.errors import HeadraceError as HeadraceError
    from headrace.errors import JobError as JobError
    from headrace.errors import JobFailedError as JobFailedError
    from headrace.errors import MissingPluginError as MissingPluginError
    from headrace.errors import OptionError as OptionError
    from headrace.errors import PlanError as PlanError
    from headrace.errors import PluginConflictError as PluginConflictError
    from headrace.errors import RetriableError as RetriableError
    from headrace.functions import AggregateFunction as AggregateFunction
    from headrace.functions import ScalarFunction as ScalarFunction
    from headrace.functions import TableFunction as TableFunction
    from headrace.functions import udaf as udaf
    from headrace.functions import udf as udf
    from headrace.functions import udtf as udtf
    from headrace.hookspecs import hookimpl as hookimpl
    from headrace.jobs import Job as Job
    from headrace.jobs import job as job
    from headrace.jobs import namespace as namespace
    from headrace.keyed import KeyedStream as KeyedStream
    from headrace.keyed import WindowedStream as WindowedStream
    from headrace.language import Language as Language
    from headrace.language import register as register
    from headrace.language import sql as sql
    from headrace.language import table as table
    from headrace.messages import Batch as Batch
    from headrace.messages import Bodies as Bodies
    from headrace.messages import ChangeKind as ChangeKind
    from headrace.messages import Checkpoint as Checkpoint
    from headrace.messages import EndOfInput as EndOfInput
    from headrace.messages import Position as Position
    from headrace.messages import Queue as Queue
    from headrace.messages import QueueAdded as QueueAdded
    from headrace.messages import QueueRemoved as QueueRemoved
    from headrace.messages import RawBatch as RawBatch
    from headrace.messages import ReadPosition as ReadPosition
    from headrace.messages import Tick as Tick
    from headrace.messages import Watermark as Watermark
    from headrace.operator import Changes as Changes
    from headrace.operator import Operator as Operator
    from headrace.operator import OperatorSpec as OperatorSpec
    from headrace.operator import RejectedRows as RejectedRows
    from headrace.operator import StatefulOperator as StatefulOperator
    from headrace.operator import StatefulSpec as StatefulSpec
    from headrace.operator import renumber as renumber
    from headrace.schema import Schema as Schema
    from headrace.settings import Secret as Secret
    from headrace.settings import Settings as Settings
    from headrace.settings import option as option
    from headrace.sink import IdempotentSink as IdempotentSink
    from headrace.sink import Sink as Sink
    from headrace.sink import SinkBatch as SinkBatch
    from headrace.sink import SinkSettings as SinkSettings
    from headrace.sink import StaleWriterError as StaleWriterError
    from headrace.sink import TransactionalSink as TransactionalSink
    from headrace.source import EARLIEST as EARLIEST
    from headrace.source import LATEST as LATEST
    from headrace.source import GroupListener as GroupListener
    from headrace.source import GroupSource as GroupSource
    from headrace.source import Reader as Reader
    from headrace.source import Source as Source
    from headrace.source import Start as Start
    from headrace.source import StartAt as StartAt
    from headrace.state_store import KeyedStateStore as KeyedStateStore
    from headrace.state_store import StateStore as StateStore
    from headrace.state_store import StoredVersion as StoredVersion
    from headrace.windows import Emit as Emit
    from headrace.windows import Window as Window
    from headrace.windows import cumulative as cumulative
    from headrace.windows import emit as emit
    from headrace.windows import session as session
    from headrace.windows import sliding as sliding
    from headrace.windows import tumbling as tumbling
