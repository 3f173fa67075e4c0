"""A naive interpreter of streaming jobs: one row after the other, dicts and lists, slow and obvious. It knows nothing of headrace."""

from tests.differential.streams.interpreter.run import Outcome, interpret

__all__ = ["Outcome", "interpret"]
