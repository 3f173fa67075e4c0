"""What happens to a batch for which an operator raises an error: it is tried again in halves, until the bad rows are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headrace.flow.messages import Batch, Watermark
from headrace.foundation.errors import HeadraceError
from headrace.interfaces.operator import RejectedRows

if TYPE_CHECKING:
    import polars as pl

Made = Batch | RejectedRows | Watermark
_REASON_LENGTH_MAX = 200


def may_be_the_rows_fault(error: BaseException) -> bool:
    """Return whether an unexpected error may be caused by the values in a batch. A MemoryError is not: it is a fault of
    the process.
    """
    import polars as pl

    if isinstance(error, HeadraceError | MemoryError):
        return False
    # A panic of polars is no Exception.
    return isinstance(error, Exception | pl.exceptions.PanicException)


def process_by_rows(process: Callable[[Batch], Iterable[Made]], batch: Batch, error: BaseException) -> list[Made]:
    """Process a batch again for which an operator without state has raised ``error``. Rows that fail alone are rejected.

    Raises the error itself if the operator fails for a batch without rows, or for each of several rows: then it is
    the operator's fault. headrace's own errors are raised without such a trial.
    """
    try:
        list(process(batch.with_frame(batch.frame.clear())))
    except (HeadraceError, MemoryError):
        raise
    except BaseException:
        raise error from None
    made: list[Made] = []
    refused: list[tuple[pl.DataFrame, BaseException]] = []
    pending: list[tuple[pl.DataFrame, BaseException | None]] = [(batch.frame, error)]
    while pending:
        part, failed = pending.pop()
        if failed is None:
            try:
                made += list(process(batch.with_frame(part)))
                continue
            except BaseException as again:
                if not may_be_the_rows_fault(again):
                    raise
                failed = again
        if part.height == 1:
            refused.append((part, failed))
        else:
            middle = part.height // 2
            pending += [(part.slice(middle), None), (part.slice(0, middle), None)]
    if len(refused) == batch.frame.height > 1:
        raise error
    return made + [RejectedRows(row, [_reason(raised)], [type(raised).__name__]) for row, raised in refused]


def _reason(error: BaseException) -> str:
    text = next(iter(str(error).splitlines()), "") or type(error).__name__
    return f"this row cannot be processed: {text}"[:_REASON_LENGTH_MAX]
