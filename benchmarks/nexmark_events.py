"""Makes the events of benchmarks.nexmark: people, auctions and bids in 1 : 3 : 46, the same ones every time.

    python -m benchmarks.nexmark_events FILE [EVENTS]

The rules are those of the Nexmark suite: ids from 1,000, half of the bids on the hot auction of each hundred, three quarters of
the bids by the hot bidder of each hundred people, auctions open for some thousand events, prices ``100 * 10 ** (6 * u)``, free text
that brings people to about 200, auctions to 500 and bids to 100 bytes beside their URLs; 10,000 events per second of event time, in order.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

EVENTS_PER_SECOND = 10_000
START_MS = 1_767_268_800_000  # 2026-01-01 12:00 UTC: no day ends within the data
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1_000, 10, 5
GROUP, PEOPLE, AUCTIONS = 50, 1, 3
#: The first (the second, for bidders) of so many ids is the hot one.
HOT = 100
IN_FLIGHT, ACTIVE_PEOPLE, LEAD = 100, 1_000, 10
CHANNELS, HOT_CHANNELS = 10_000, ("Google", "Facebook", "Baidu", "Apple")
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne",
)  # fmt: skip
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
Integers = NDArray[np.int64]
Random = np.random.Generator


def make(path: Path, events: int, seed: int = 7) -> None:
    """Write the events as a JSON object per line."""
    random = np.random.default_rng(seed)
    numbers = np.arange(events, dtype=np.int64)
    place = numbers % GROUP
    kinds = np.where(place < PEOPLE, 0, np.where(place < PEOPLE + AUCTIONS, 1, 2))
    frames = []
    for index, (name, made) in enumerate({"person": _people, "auction": _auctions, "bid": _bids}.items()):
        chosen = numbers[kinds == index]
        frame = made(chosen, random)
        frames.append(
            frame.select(
                pl.Series("number", chosen),
                pl.lit(index, pl.Int32).alias("event_type"),
                pl.struct(pl.all()).alias(name),
            )
        )
    together = pl.concat(frames, how="diagonal").sort("number")
    together.select("event_type", "person", "auction", "bid").write_ndjson(path)


def _people(numbers: Integers, random: Random) -> pl.DataFrame:
    count = len(numbers)
    return pl.DataFrame(
        {
            "id": FIRST_ID + _last_person(numbers),
            "name": _pick(FIRST_NAMES, count, random) + " " + _pick(LAST_NAMES, count, random),
            "emailAddress": _letters(count, 3, 7, random) + "@" + _letters(count, 3, 5, random) + ".com",
            "creditCard": pl.Series(random.integers(10**15, 10**16, count)).cast(pl.String),
            "city": _pick(CITIES, count, random),
            "state": _pick(STATES, count, random),
            "dateTime": _stamps(_times_ms(numbers)),
            "extra": _letters(count, 100, 140, random),
        }
    )


def _auctions(numbers: Integers, random: Random) -> pl.DataFrame:
    count = len(numbers)
    people = _last_person(numbers)
    hot = random.integers(0, 4, count) > 0
    first = _prices(count, random)
    open_ms = IN_FLIGHT * GROUP // AUCTIONS * 1_000 // EVENTS_PER_SECOND
    times_ms = _times_ms(numbers)
    return pl.DataFrame(
        {
            "id": FIRST_ID + _last_auction(numbers),
            "itemName": _letters(count, 3, 20, random),
            "description": _letters(count, 3, 100, random),
            "initialBid": first,
            "reserve": first + _prices(count, random),
            "dateTime": _stamps(times_ms),
            "expires": _stamps(times_ms + 1 + random.integers(0, 2 * open_ms, count)),
            "seller": FIRST_ID + np.where(hot, people // HOT * HOT, _some_person(people, random)),
            "category": random.integers(FIRST_CATEGORY, FIRST_CATEGORY + CATEGORIES, count),
            "extra": _letters(count, 320, 480, random),
        }
    )


def _bids(numbers: Integers, random: Random) -> pl.DataFrame:
    count = len(numbers)
    people, auctions = _last_person(numbers), _last_auction(numbers)
    first = np.maximum(auctions - IN_FLIGHT, 0)
    some_auction = first + random.integers(0, auctions - first + 1 + LEAD)
    hot_auction, hot_bidder = random.integers(0, 2, count) > 0, random.integers(0, 4, count) > 0
    names = pl.Series([*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))])
    channel = np.where(
        random.integers(0, 2, count) > 0,
        random.integers(0, len(HOT_CHANNELS), count),
        len(HOT_CHANNELS) + random.integers(0, CHANNELS, count),
    )
    return pl.DataFrame(
        {
            "auction": FIRST_ID + np.where(hot_auction, auctions // HOT * HOT, some_auction),
            "bidder": FIRST_ID + np.where(hot_bidder, people // HOT * HOT + 1, _some_person(people, random)),
            "price": _prices(count, random),
            "channel": names.gather(channel),
            "url": _urls(len(names), random).gather(channel),
            "dateTime": _stamps(_times_ms(numbers)),
            "extra": _letters(count, 54, 82, random),
        }
    )


def _last_person(numbers: Integers) -> Integers:
    """Return the number of the newest person at each event."""
    return numbers // GROUP * PEOPLE + np.minimum(numbers % GROUP, PEOPLE - 1)


def _last_auction(numbers: Integers) -> Integers:
    """Return the number of the newest auction at each event; 0 before the first."""
    place = numbers % GROUP - PEOPLE
    return np.maximum(numbers // GROUP * AUCTIONS + np.clip(place, -1, AUCTIONS - 1), 0)


def _some_person(people: Integers, random: Random) -> Integers:
    active = np.minimum(people + 1, ACTIVE_PEOPLE)
    return people + 1 - active + random.integers(0, active + LEAD)


def _times_ms(numbers: Integers) -> Integers:
    return START_MS + numbers * 1_000 // EVENTS_PER_SECOND


def _stamps(times_ms: Integers) -> pl.Series:
    return pl.Series(times_ms).cast(pl.Datetime("ms")).dt.strftime("%Y-%m-%d %H:%M:%S%.3f")


def _prices(count: int, random: Random) -> Integers:
    return np.rint(100 * 10 ** (6 * random.random(count))).astype(np.int64)


def _pick(names: Sequence[str], count: int, random: Random) -> pl.Series:
    return pl.Series(names).gather(random.integers(0, len(names), count))


def _letters(count: int, shortest: int, longest: int, random: Random) -> pl.Series:
    drawn = random.integers(ord("a"), ord("z") + 1, (count, longest), dtype=np.uint8)
    texts = pl.Series(drawn.view(f"S{longest}").ravel().astype(str))
    return texts.str.slice(0, pl.Series(random.integers(shortest, longest + 1, count)))


def _urls(count: int, random: Random) -> pl.Series:
    """Return a URL per channel; nine in ten have the id that one query looks for."""
    parts = [_letters(count, 3, 5, random) for _ in range(3)]
    ids = pl.Series(random.integers(0, 2**31, count)).cast(pl.String)
    tail = pl.Series(random.integers(0, 10, count) > 0)
    base = "https://www.nexmark.com/" + parts[0] + "/" + parts[1] + "/" + parts[2] + "/item.htm?query=1"
    return pl.select(pl.when(tail).then(base + "&channel_id=" + ids).otherwise(base)).to_series()


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
