"""Starts a streaming query that writes to the sinks of a job, over sources of headrace or over DataFrames."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from headrace.foundation.errors import HeadraceError, JobError
from headrace.interfaces.backend import RunOptions
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headrace_spark.processes.driver_python import register
from headrace_spark.processes.reasons import hint_for, reason_of
from headrace_spark.processes.session import SessionInUse, active
from headrace_spark.processes.settings import SparkSettings
from headrace_spark.queries.stage_names import query_name
from headrace_spark.transit.failures import original_error
from headrace_spark.transit.payload import JobPayload
from headrace_spark.workers.streaming import data_sources_of

logger = logging.getLogger(__name__)
_MILLISECOND = timedelta(milliseconds=1)


def started_stream(
    make: Callable[[], DataFrame],
    names: Sequence[str],
    payload: JobPayload,
    location: str,
    options: RunOptions,
    settings: SparkSettings,
    in_use: SessionInUse,
) -> StreamingQuery:
    """Start the query. Called once per start, when checkpoint and outputs were checked.

    ``make`` returns the input of the sink stage, ``names`` are the names of the stages in Spark's UI, ``location`` is Spark's
    checkpoint. Raises JobError, also for what Spark finds before the query runs.
    """
    session, sink = in_use.session, data_sources_of(payload)[1]
    try:
        register(session, sink, payload.workers_python)
        writer = (
            make()
            .writeStream.format(sink.name())
            .queryName(query_name(payload.identity.job, payload.token, names))
            .option("checkpointLocation", location)
        )
        trigger: dict[str, Any] = {"processingTime": f"{settings.trigger_interval // _MILLISECOND} milliseconds"}
        if options.until == "end":
            trigger = {"availableNow": True}
        with active(session):
            return writer.trigger(**trigger).start()
    except HeadraceError:
        raise
    except Exception as error:  # py4j's and pyspark's: what Spark finds before the query runs
        logger.debug("Spark did not start job %s", payload.identity.job, exc_info=True)
        found = original_error(str(error))
        raise found or JobError(
            f"Spark did not start the job: {reason_of(error)}",
            job=payload.identity.job,
            hint=hint_for(str(error), in_use.log_file),
        ) from None
