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

from headrace.foundation.lazy_names import lazy_names

__version__ = "0.1.0"

_MODULES = {
    "headrace.jobs.dsl": ("stream", "Stream", "Pipeline", "Branches", "FunctionCatalog"),
    "headrace.jobs.job": ("Job", "job", "namespace"),
    "headrace.flow.schema": ("Schema",),
    "headrace.interfaces.settings": ("Settings", "Secret", "option"),
    "headrace.flow.messages": (
        "Batch", "Bodies", "ChangeKind", "Checkpoint", "Position", "Queue", "QueueAdded", "QueueRemoved", "RawBatch",
        "ReadPosition", "Watermark", "Tick", "EndOfInput",
    ),
    "headrace.interfaces.source": ("Source", "Reader", "GroupSource", "GroupListener", "Start", "StartAt", "EARLIEST", "LATEST"),
    "headrace.interfaces.operator": (
        "Operator", "OperatorSpec", "RejectedRows", "renumber", "StatefulOperator", "StatefulSpec", "Changes",
    ),
    "headrace.jobs.keyed": ("KeyedStream", "WindowedStream"),
    "headrace.interfaces.windows": ("tumbling", "sliding", "session", "cumulative", "emit", "Window", "Emit"),
    "headrace.interfaces.sink": (
        "Sink", "IdempotentSink", "TransactionalSink", "SinkBatch", "SinkSettings", "StaleWriterError",
    ),
    "headrace.interfaces.changes": ("SourceChanges",),
    "headrace.interfaces.codec": ("Codec", "Decoder", "DecoderRequest", "Encoder", "Decoded", "BadBody"),
    "headrace.interfaces.functions": ("udf", "udtf", "udaf", "ScalarFunction", "TableFunction", "AggregateFunction"),
    "headrace.interfaces.state_store": ("KeyedStateStore", "ReadableStateStore", "StateStore", "StoredVersion"),
    "headrace.interfaces.backend": (
        "Backend", "JobHandle", "JobReport", "JobState", "JobStatus", "QueueStatus", "RunOptions",
    ),
    "headrace.interfaces.hookspecs": ("hookimpl",),
    "headrace.interfaces.language": ("sql", "table", "register", "Language"),
    "headrace.foundation.errors": (
        "HeadraceError", "JobError", "PlanError", "ExpressionError", "OptionError", "MissingPluginError",
        "PluginConflictError", "FunctionError", "CheckpointError", "RetriableError", "DataError",
        "BrokenQueueError", "JobFailedError",
    ),
}  # fmt: skip
__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)

if TYPE_CHECKING:
    from headrace.flow.messages import Batch as Batch
    from headrace.flow.messages import Bodies as Bodies
    from headrace.flow.messages import ChangeKind as ChangeKind
    from headrace.flow.messages import Checkpoint as Checkpoint
    from headrace.flow.messages import EndOfInput as EndOfInput
    from headrace.flow.messages import Position as Position
    from headrace.flow.messages import Queue as Queue
    from headrace.flow.messages import QueueAdded as QueueAdded
    from headrace.flow.messages import QueueRemoved as QueueRemoved
    from headrace.flow.messages import RawBatch as RawBatch
    from headrace.flow.messages import ReadPosition as ReadPosition
    from headrace.flow.messages import Tick as Tick
    from headrace.flow.messages import Watermark as Watermark
    from headrace.flow.schema import Schema as Schema
    from headrace.foundation.errors import BrokenQueueError as BrokenQueueError
    from headrace.foundation.errors import CheckpointError as CheckpointError
    from headrace.foundation.errors import DataError as DataError
    from headrace.foundation.errors import ExpressionError as ExpressionError
    from headrace.foundation.errors import FunctionError as FunctionError
    from headrace.foundation.errors import HeadraceError as HeadraceError
    from headrace.foundation.errors import JobError as JobError
    from headrace.foundation.errors import JobFailedError as JobFailedError
    from headrace.foundation.errors import MissingPluginError as MissingPluginError
    from headrace.foundation.errors import OptionError as OptionError
    from headrace.foundation.errors import PlanError as PlanError
    from headrace.foundation.errors import PluginConflictError as PluginConflictError
    from headrace.foundation.errors import RetriableError as RetriableError
    from headrace.interfaces.backend import Backend as Backend
    from headrace.interfaces.backend import JobHandle as JobHandle
    from headrace.interfaces.backend import JobReport as JobReport
    from headrace.interfaces.backend import JobState as JobState
    from headrace.interfaces.backend import JobStatus as JobStatus
    from headrace.interfaces.backend import QueueStatus as QueueStatus
    from headrace.interfaces.backend import RunOptions as RunOptions
    from headrace.interfaces.changes import SourceChanges as SourceChanges
    from headrace.interfaces.codec import BadBody as BadBody
    from headrace.interfaces.codec import Codec as Codec
    from headrace.interfaces.codec import Decoded as Decoded
    from headrace.interfaces.codec import Decoder as Decoder
    from headrace.interfaces.codec import DecoderRequest as DecoderRequest
    from headrace.interfaces.codec import Encoder as Encoder
    from headrace.interfaces.functions import AggregateFunction as AggregateFunction
    from headrace.interfaces.functions import ScalarFunction as ScalarFunction
    from headrace.interfaces.functions import TableFunction as TableFunction
    from headrace.interfaces.functions import udaf as udaf
    from headrace.interfaces.functions import udf as udf
    from headrace.interfaces.functions import udtf as udtf
    from headrace.interfaces.hookspecs import hookimpl as hookimpl
    from headrace.interfaces.language import Language as Language
    from headrace.interfaces.language import register as register
    from headrace.interfaces.language import sql as sql
    from headrace.interfaces.language import table as table
    from headrace.interfaces.operator import Changes as Changes
    from headrace.interfaces.operator import Operator as Operator
    from headrace.interfaces.operator import OperatorSpec as OperatorSpec
    from headrace.interfaces.operator import RejectedRows as RejectedRows
    from headrace.interfaces.operator import StatefulOperator as StatefulOperator
    from headrace.interfaces.operator import StatefulSpec as StatefulSpec
    from headrace.interfaces.operator import renumber as renumber
    from headrace.interfaces.settings import Secret as Secret
    from headrace.interfaces.settings import Settings as Settings
    from headrace.interfaces.settings import option as option
    from headrace.interfaces.sink import IdempotentSink as IdempotentSink
    from headrace.interfaces.sink import Sink as Sink
    from headrace.interfaces.sink import SinkBatch as SinkBatch
    from headrace.interfaces.sink import SinkSettings as SinkSettings
    from headrace.interfaces.sink import StaleWriterError as StaleWriterError
    from headrace.interfaces.sink import TransactionalSink as TransactionalSink
    from headrace.interfaces.source import EARLIEST as EARLIEST
    from headrace.interfaces.source import LATEST as LATEST
    from headrace.interfaces.source import GroupListener as GroupListener
    from headrace.interfaces.source import GroupSource as GroupSource
    from headrace.interfaces.source import Reader as Reader
    from headrace.interfaces.source import Source as Source
    from headrace.interfaces.source import Start as Start
    from headrace.interfaces.source import StartAt as StartAt
    from headrace.interfaces.state_store import KeyedStateStore as KeyedStateStore
    from headrace.interfaces.state_store import ReadableStateStore as ReadableStateStore
    from headrace.interfaces.state_store import StateStore as StateStore
    from headrace.interfaces.state_store import StoredVersion as StoredVersion
    from headrace.interfaces.windows import Emit as Emit
    from headrace.interfaces.windows import Window as Window
    from headrace.interfaces.windows import cumulative as cumulative
    from headrace.interfaces.windows import emit as emit
    from headrace.interfaces.windows import session as session
    from headrace.interfaces.windows import sliding as sliding
    from headrace.interfaces.windows import tumbling as tumbling
    from headrace.jobs.dsl import Branches as Branches
    from headrace.jobs.dsl import FunctionCatalog as FunctionCatalog
    from headrace.jobs.dsl import Pipeline as Pipeline
    from headrace.jobs.dsl import Stream as Stream
    from headrace.jobs.dsl import stream as stream
    from headrace.jobs.job import Job as Job
    from headrace.jobs.job import job as job
    from headrace.jobs.job import namespace as namespace
    from headrace.jobs.keyed import KeyedStream as KeyedStream
    from headrace.jobs.keyed import WindowedStream as WindowedStream
