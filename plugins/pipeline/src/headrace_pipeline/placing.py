"""Errors of headrace get the place in the file to which they belong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.foundation.errors import ExpressionError, JobError
from headrace.foundation.secrecy import is_secret_name

from headrace_pipeline.document import Section, Value
from headrace_pipeline.errors import PipelineError, Place


@contextmanager
def placed(value: Value) -> Iterator[None]:
    """Raise errors of a part of the file as PipelineError: at the option or the expression that the error names, otherwise here.

    Errors of servers that are away pass through as they are.
    """
    try:
        yield
    except PipelineError:
        raise
    except ExpressionError as error:
        raise _found(value, error, _place_of_expression(value, error)) from None
    except JobError as error:
        raise _found(value, error, _place_of_option(value, error.option)) from None


def _found(value: Value, error: JobError, place: Place | None) -> PipelineError:
    return value.error(error.message, hint=error.hint, option=error.option, plugin=error.plugin, place=place)


def _place_of_expression(value: Value, error: ExpressionError) -> Place | None:
    """Return the place of a wrong part of an expression. The text of the error is a whole scalar, or a part of one."""
    if error.text is None:
        return None
    for scalar in value.scalars():
        text = scalar.source
        begin = text.find(error.text)
        if begin >= 0:
            return scalar.place_of(begin + (error.position or 0))
    return None


def _place_of_option(value: Value, option: str | None) -> Place | None:
    """Return the place of an option: of its value, or of its key if that says that it holds a secret."""
    if option is None:
        return None
    found: Place | None = None
    for part in (option, *option.split(".")):
        if not isinstance(value, Section) or part not in value.entries:
            continue
        entry = value.entries[part]
        found = entry.key.place
        value = entry.value
        if not is_secret_name(part):
            found = value.place
    return found
