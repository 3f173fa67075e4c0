"""How units are spread over servers: cases made by a machine, and the ones that people ask about."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from headrace_server.sharing.spread import WEIGHT, WEIGHT_AT_REST, Load, Place, spread
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

NAMES = [f"s{number}" for number in range(6)]
places = st.lists(
    st.builds(
        Place, name=st.sampled_from(NAMES), machine=st.sampled_from(["m1", "m2", "m3"]), data=st.just(""),
        cores=st.sampled_from([1, 2, 8]),
    ),
    unique_by=lambda place: place.name, max_size=5,
).map(lambda found: [replace(each, data=f"data-{each.name}") for each in found])  # fmt: skip
loads = st.lists(
    st.builds(
        Load, unit=st.integers(0, 60).map(lambda number: f"u{number}"),
        weight=st.sampled_from([WEIGHT_AT_REST, WEIGHT, WEIGHT, WEIGHT, WEIGHT + 0.25, WEIGHT + 2.5]),
        server=st.none() | st.sampled_from(NAMES), machine=st.none() | st.sampled_from(["m1", "m2"]),
        home=st.none() | st.none() | st.sampled_from(NAMES).map(lambda name: f"data-{name}"), fixed=st.booleans(),
    ),
    unique_by=lambda load: load.unit, max_size=30,
)  # fmt: skip


def after(found: dict[str, str | None], given_loads: list[Load]) -> list[Load]:
    return [replace(each, server=found[each.unit]) for each in given_loads]


@given(places, loads)
@settings(max_examples=examples(300), deadline=None)
def test_every_unit_has_a_server_that_may_have_it_or_none_if_there_is_none(
    given_places: list[Place], given_loads: list[Load]
) -> None:
    found = spread(given_places, given_loads)
    by_name = {each.name: each for each in given_places}
    assert found.keys() == {each.unit for each in given_loads}
    for load in given_loads:
        allowed = {name for name, place in by_name.items() if load.home in (None, place.data)}
        server = found[load.unit]
        assert server in allowed if allowed else server is None
        if load.fixed and load.server in allowed:
            assert server == load.server


@given(places, loads)
@settings(max_examples=examples(300), deadline=None)
def test_its_own_answer_is_left_as_it_is_and_the_order_of_what_is_given_does_not_count(
    given_places: list[Place], given_loads: list[Load]
) -> None:
    found = spread(given_places, given_loads)
    assert spread(given_places, after(found, given_loads)) == found
    assert spread(given_places[::-1], given_loads[::-1]) == found


@given(places.filter(bool), loads)
@settings(max_examples=examples(300), deadline=None)
def test_no_move_that_would_clearly_help_is_left(given_places: list[Place], given_loads: list[Load]) -> None:
    found = spread(given_places, given_loads)
    filled: Counter[str] = Counter()
    for load in given_loads:
        if (server := found[load.unit]) is not None:
            filled[server] += load.weight  # type: ignore[assignment]
    for load in given_loads:
        if load.home is not None or load.fixed:
            continue
        source = next(each for each in given_places if each.name == found[load.unit])
        for target in given_places:
            before = max(filled[source.name] / source.cores, filled[target.name] / target.cores)
            moved = max(
                (filled[source.name] - load.weight) / source.cores, (filled[target.name] + load.weight) / target.cores
            )
            assert (
                target is source
                or (before - moved) * max(source.cores, target.cores) <= 0.5 * min(1, load.weight) + 1e-9
            )


@given(st.integers(1, 5), st.integers(0, 40), st.integers(0, 4))
@settings(max_examples=examples(200), deadline=None)
def test_equal_units_are_spread_evenly_and_no_more_are_moved_than_needed(servers: int, count: int, lost: int) -> None:
    given_places = [Place(f"s{number}", f"m{number}", f"d{number}") for number in range(servers)]
    given_loads = [Load(f"u{number}", WEIGHT) for number in range(count)]
    found = spread(given_places, given_loads)
    assert _is_even(found, given_places)
    # A server joins: units go to it only, and as many as its share.
    joined = [*given_places, Place("new", "m", "d")]
    then = spread(joined, after(found, given_loads))
    moved = {unit: server for unit, server in then.items() if server != found[unit]}
    assert set(moved.values()) <= {"new"}
    assert len(moved) == count // (servers + 1)
    assert _is_even(then, joined)
    # A server is lost: only its units move.
    left = [place for place in joined if place.name != f"s{lost % servers}"]
    last = spread(left, after(then, given_loads))
    assert {unit for unit in last if last[unit] != then[unit]} == {
        unit for unit, server in then.items() if server == f"s{lost % servers}"
    }
    assert _is_even(last, left)


def _is_even(found: dict[str, str | None], given_places: list[Place]) -> bool:
    counts = Counter({place.name: 0 for place in given_places})
    counts.update(str(server) for server in found.values())
    return max(counts.values()) - min(counts.values()) <= 1


def test_a_heavy_unit_has_a_server_for_itself() -> None:
    given_places = [Place("a", "m1", "d1"), Place("b", "m2", "d2")]
    given_loads = [Load("heavy", WEIGHT + 4), *(Load(f"light{number}", WEIGHT) for number in range(4))]
    found = spread(given_places, given_loads)
    assert {found[f"light{number}"] for number in range(4)} != {found["heavy"]}
    assert sum(server == found["heavy"] for server in found.values()) == 1


def test_a_server_with_more_cores_has_more_units() -> None:
    given_places = [Place("small", "m1", "d1", cores=2), Place("large", "m2", "d2", cores=8)]
    found = spread(given_places, [Load(f"u{number}", WEIGHT) for number in range(10)])
    assert Counter(found.values()) == {"small": 2, "large": 8}


def test_the_units_of_a_dead_server_go_to_the_machine_where_their_processes_run() -> None:
    given_places = [Place("a", "m1", "d1"), Place("far", "m2", "d2")]
    found = spread(given_places, [Load("u", WEIGHT, server="dead", machine="m2")])
    assert found == {"u": "far"}


def test_a_unit_whose_state_lies_on_a_disk_waits_for_its_server() -> None:
    load = Load("u", WEIGHT, server="a", home="d1")
    assert spread([Place("b", "m2", "d2")], [load]) == {"u": None}
    assert spread([Place("b", "m2", "d2"), Place("a2", "m1", "d1")], [load]) == {"u": "a2"}
