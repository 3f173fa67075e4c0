"""Windows that end at each event: their counts, for all events of many groups at once.

A window of an event has the events of its group from ``span`` before it to the event itself, both included. Events of one time
stand in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_detection.correlations import RULE, Correlation

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass
class Events:
    """Events ordered by group, time and arrival. ``which`` is the place of each event's correlation in a sequence."""

    groups: Integers
    times: Integers
    which: Integers
    masks: Integers
    values: pl.Series
    #: Whether the condition was true at the event; only events that were looked at before know it.
    fulfilled: Flags
    is_new: Flags


@dataclass
class Found:
    """What was found for each event."""

    #: The place of the first event in the window.
    begins: Integers
    #: The number that the condition is on.
    counts: Integers
    fulfilled: Flags
    #: Whether the condition was not true yet at the event before it in its window.
    is_first: Flags


def looked_at(events: Events, correlations: Sequence[Correlation]) -> Found:
    """Return the content of the windows of all events. For events that are not new only ``fulfilled`` is valid."""
    spans = np.array([one.span_us for one in correlations], dtype=np.int64)
    begins = window_begins(events.groups, events.times, spans[events.which])
    counts = np.arange(begins.size) - begins + 1
    kinds = np.array([one.kind for one in correlations])[events.which]
    distinct = kinds == "value_count"
    if distinct.any():
        counts[distinct] = distinct_values(events.groups, begins, events.values)[distinct]
    for number in np.unique(events.which[(kinds == "temporal") | (kinds == "temporal_ordered")]).tolist():
        one, own = correlations[number], np.flatnonzero(events.which == number)
        # Groups of one correlation may have others between them: so all places are those among its own events.
        first = np.searchsorted(own, begins[own])
        count = ordered_rules if one.kind == "temporal_ordered" else different_rules
        counts[own] = count(events.masks[own], first, len(one.rules))
    fulfilled = _is_fulfilled(counts, events.which, correlations)
    fulfilled = np.where(events.is_new, fulfilled | (kinds == RULE), events.fulfilled)
    before = np.arange(begins.size) - 1
    was = (before >= begins) & fulfilled[before]
    return Found(begins, counts, fulfilled, fulfilled & (~was | (kinds == RULE)))


def window_begins(groups: Integers, times: Integers, spans: Integers) -> Integers:
    """Return for each event the place of the first event of its group that is at most ``spans`` before it."""
    count = times.size
    both_groups = np.concatenate([groups, groups])
    both_times = np.concatenate([times - spans, times])
    is_event = np.repeat([0, 1], count)
    order = np.lexsort((is_event, both_times, both_groups))
    before = np.cumsum(order >= count)
    asked = np.flatnonzero(order < count)
    begins = np.empty(count, dtype=np.int64)
    begins[order[asked]] = before[asked]
    return begins


def distinct_values(groups: Integers, begins: Integers, values: pl.Series) -> Integers:
    """Return how many different values, NULL not counted, the window of each event has.

    Each event counts in the windows that end at it or later, before the next event of the same value, and begin at it or
    before: that is one run of events, because ``begins`` never falls.
    """
    count = begins.size
    rows = pl.DataFrame({"group": groups, "value": values, "place": np.arange(count)})
    following = rows.select(pl.col("place").shift(-1, fill_value=count).over("group", "value")).to_series().to_numpy()
    last = np.searchsorted(begins, np.arange(count), side="right")
    known = values.is_not_null().to_numpy()
    ends = np.minimum(following, last)[known]
    steps = np.zeros(count + 1, dtype=np.int64)
    steps[:count][known] += 1
    np.subtract.at(steps, ends, 1)
    return np.cumsum(steps)[:count]


def different_rules(masks: Integers, begins: Integers, rules: int) -> Integers:
    """Return how many of the rules an event of the window has matched."""
    counts = np.zeros(masks.size, dtype=np.int64)
    for rule in range(rules):
        counts += _last(masks, rule) >= begins
    return counts


def ordered_rules(masks: Integers, begins: Integers, rules: int) -> Integers:
    """Return how many rules, from the first on, different events of the window have matched in this order."""
    counts = np.zeros(masks.size, dtype=np.int64)
    #: Where the latest chain of the rules so far begins that is whole at an event; -1: there is none.
    latest = np.zeros(0, dtype=np.int64)
    for rule in range(rules):
        if rule == 0:
            latest = _last(masks, 0)
        else:
            before = np.concatenate([[-1], latest[:-1]])
            latest = np.maximum.accumulate(np.where((masks >> rule) & 1 == 1, before, -1))
        counts += latest >= begins
    return counts


def _last(masks: Integers, rule: int) -> Integers:
    """Return for each event the place of the last one up to it that has matched a rule; -1: there is none."""
    found: Integers = np.maximum.accumulate(np.where((masks >> rule) & 1 == 1, np.arange(masks.size), -1))
    return found


def _is_fulfilled(counts: Integers, which: Integers, correlations: Sequence[Correlation]) -> Flags:
    bounds = [one.bounds for one in correlations]
    low = np.array([each.low for each in bounds], dtype=np.int64)[which]
    high = np.array([each.high for each in bounds], dtype=np.int64)[which]
    found: Flags = (counts >= low) & (counts <= high)
    for number, each in enumerate(bounds):
        for value in each.unequal:
            found &= ~((which == number) & (counts == value))
    return found
