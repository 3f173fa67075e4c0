"""Which pulls are made of a queue, and that their answers join without gap, repetition or disorder."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from headrace_rocketmq import MessageQueue
from headrace_rocketmq.codes import ResponseCode
from headrace_rocketmq.errors import (
    BrokerBusyError,
    BrokerError,
    ConnectionLostError,
    OffsetOutOfRangeError,
    ProtocolError,
)
from headrace_rocketmq.fetch import Pull, QueueFetch
from headrace_rocketmq.frame import Frame
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

QUEUE = MessageQueue("topic", "broker", 0)


def fetch(
    offset: int = 0,
    *,
    end_offset: int | None = None,
    window: int = 4,
    pull_messages_max: int = 32,
    is_dense: bool = True,
) -> QueueFetch:
    return QueueFetch(
        QUEUE,
        offset,
        end_offset=end_offset,
        window=window,
        pull_messages_max=pull_messages_max,
        is_dense=is_dense,
    )


def found(next_offset: int, latest: int, body: bytes = b"messages") -> Frame:
    fields = {"nextBeginOffset": str(next_offset), "minOffset": "0", "maxOffset": str(latest)}
    return Frame(code=ResponseCode.SUCCESS, opaque=0, fields=fields, body=body)


def empty(code: int, next_offset: int, latest: int, remark: str | None = None) -> Frame:
    fields = {"nextBeginOffset": str(next_offset), "minOffset": "0", "maxOffset": str(latest)}
    return Frame(code=code, opaque=0, fields=fields, remark=remark)


def shape(pulls: list[Pull]) -> list[tuple[int, int, bool]]:
    return [(pull.offset, pull.messages_max, pull.suspend) for pull in pulls]


def test_the_first_pull_may_be_held() -> None:
    one = fetch(7)
    assert shape(one.due_pulls()) == [(7, 32, True)]
    assert one.due_pulls() == []
    assert one.collect() is None


def test_the_window_is_filled_as_far_as_messages_are_known_to_be() -> None:
    one = fetch(0, window=4)
    (first,) = one.due_pulls()
    first.outcome = found(32, latest=100)
    answer = one.collect()
    assert answer is not None
    assert (answer.offset, answer.next_offset, answer.body) == (0, 32, b"messages")
    assert shape(one.due_pulls()) == [(32, 32, False), (64, 32, False), (96, 32, False)]
    assert one.position == 32


def test_answers_come_out_in_order_only() -> None:
    one = fetch(0, window=3)
    (first,) = one.due_pulls()
    first.outcome = found(32, latest=1000)
    one.collect()
    second, third, _ = one.due_pulls()
    third.outcome = found(96, latest=1000)
    assert one.messages_bound == 0
    assert one.collect() is None
    second.outcome = found(64, latest=1000)
    assert [one.collect(), one.collect()] != [None, None]
    assert one.position == 96
    assert shape(one.due_pulls()) == [(128, 32, False), (160, 32, False)]


def test_a_short_answer_leaves_a_gap_that_is_filled_first() -> None:
    one = fetch(0, window=3)
    (first,) = one.due_pulls()
    first.outcome = found(32, latest=1000)
    one.collect()
    second, third, fourth = one.due_pulls()
    second.outcome = found(40, latest=1000)
    third.outcome = found(96, latest=1000)
    one.collect()
    assert one.collect() is None  # 40 to 64 is missing
    assert shape(one.due_pulls()) == [(40, 24, False)]
    assert fourth.outcome is None


def test_large_messages_are_foretold_by_shorter_steps() -> None:
    one = fetch(0, window=2)
    (first,) = one.due_pulls()
    first.outcome = found(10, latest=1000)
    one.collect()
    assert shape(one.due_pulls()) == [(10, 10, False), (20, 10, False)]


def test_filtered_pulls_are_made_one_by_one_and_held() -> None:
    one = fetch(0, window=8, is_dense=False)
    (first,) = one.due_pulls()
    first.outcome = found(500, latest=1000)
    one.collect()
    assert shape(one.due_pulls()) == [(500, 32, True)]


def test_a_filter_that_matches_nothing_moves_on_at_once() -> None:
    one = fetch(0, is_dense=False)
    (first,) = one.due_pulls()
    first.outcome = empty(ResponseCode.PULL_RETRY_IMMEDIATELY, 800, 1000)
    answer = one.collect()
    assert answer is not None
    assert (answer.body, one.position, one.made_progress) == (b"", 800, True)


def test_without_progress_the_caller_is_told_to_wait() -> None:
    one = fetch(5)
    (first,) = one.due_pulls()
    first.outcome = empty(ResponseCode.PULL_RETRY_IMMEDIATELY, 5, 10)
    one.collect()
    assert not one.made_progress
    (second,) = one.due_pulls()
    second.outcome = empty(ResponseCode.PULL_NOT_FOUND, 5, 5)
    one.collect()
    assert one.made_progress  # the broker held it


def test_without_progress_the_next_pull_is_one_that_may_be_held() -> None:
    one = fetch(5)
    (first,) = one.due_pulls()
    first.outcome = empty(ResponseCode.PULL_NOT_FOUND, 5, 100)  # a slave that lags behind what it was told
    one.collect()
    assert shape(one.due_pulls()) == [(5, 32, True)]


def test_an_answer_longer_than_foretold_makes_later_pulls_void() -> None:
    one = fetch(0, window=4)
    (first,) = one.due_pulls()
    first.outcome = found(32, latest=1000)
    one.collect()
    second, third, fourth, _ = one.due_pulls()
    second.outcome = found(100, latest=1000)  # a batch that was stored as one
    third.outcome = found(96, latest=1000)
    fourth.outcome = found(128, latest=1000)
    one.collect()
    assert one.position == 100
    assert shape(one.due_pulls()) == [(100, 28, False), (160, 32, False), (192, 32, False)]


def test_an_end_offset_is_not_overrun() -> None:
    one = fetch(0, end_offset=40, window=8)
    (first,) = one.due_pulls()
    assert first.messages_max == 32
    first.outcome = found(32, latest=1000)
    one.collect()
    (second,) = one.due_pulls()
    assert (second.offset, second.messages_max) == (32, 8)
    second.outcome = found(40, latest=1000)
    one.collect()
    assert one.is_finished
    assert one.due_pulls() == []


def test_a_lost_connection_is_reported_and_everything_asked_again() -> None:
    one = fetch(0, window=3)
    (first,) = one.due_pulls()
    first.outcome = found(32, latest=1000)
    one.collect()
    lost, late, _ = one.due_pulls()
    lost.outcome = ConnectionLostError("broker:1", "gone")
    with pytest.raises(ConnectionLostError):
        one.collect()
    assert shape(one.due_pulls()) == [(32, 32, False)]
    late.outcome = found(96, latest=1000)  # of a pull that is forgotten
    assert one.collect() is None
    assert one.position == 32


def test_an_offset_that_is_gone_raises_and_stays() -> None:
    one = fetch(5)
    (first,) = one.due_pulls()
    first.outcome = empty(ResponseCode.PULL_OFFSET_MOVED, 100, 200, remark="OFFSET_TOO_SMALL")
    with pytest.raises(OffsetOutOfRangeError, match=r"not 5 .*OFFSET_TOO_SMALL") as caught:
        one.collect()
    assert (caught.value.suggested, caught.value.latest) == (100, 200)
    assert one.position == 5


@pytest.mark.parametrize(
    ("offset", "remark", "is_ahead"),
    [(5, "OFFSET_TOO_SMALL", False), (300, "OFFSET_OVERFLOW_BADLY", True), (300, "OFFSET_RESET", False)],
)
def test_an_offset_that_may_still_come_is_told_apart(offset: int, remark: str, is_ahead: bool) -> None:
    one = fetch(offset)
    (first,) = one.due_pulls()
    first.outcome = empty(ResponseCode.PULL_OFFSET_MOVED, 100, 200, remark=remark)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        one.collect()
    assert caught.value.is_ahead is is_ahead


def test_the_brokers_refusal_is_raised() -> None:
    one = fetch(5)
    (first,) = one.due_pulls()
    first.outcome = Frame(code=ResponseCode.SYSTEM_BUSY, opaque=0, remark="flow control")
    with pytest.raises(BrokerBusyError, match="flow control"):
        one.collect()
    (again,) = one.due_pulls()
    again.outcome = Frame(code=ResponseCode.INVALID_PARAMETER, opaque=0, remark="queueId[9] is illegal")
    with pytest.raises(BrokerError, match="illegal"):
        one.collect()


@pytest.mark.parametrize(
    "fields", [{"nextBeginOffset": "x"}, {"nextBeginOffset": "4", "maxOffset": "9"}, {"nextBeginOffset": "5"}]
)
def test_an_answer_that_does_not_move_forward_is_refused(fields: dict[str, str]) -> None:
    one = fetch(5)
    (first,) = one.due_pulls()
    first.outcome = Frame(code=ResponseCode.SUCCESS, opaque=0, fields=fields, body=b"x")
    with pytest.raises(ProtocolError):
        one.collect()


def test_after_a_failure_one_pull_is_not_held() -> None:
    one = fetch(5)
    (first,) = one.due_pulls()
    first.outcome = ConnectionLostError("broker:1", "gone")
    with pytest.raises(ConnectionLostError):
        one.collect()
    (probe,) = one.due_pulls()
    assert not probe.suspend
    probe.outcome = empty(ResponseCode.PULL_NOT_FOUND, 5, 5)
    one.collect()
    assert one.made_progress  # it answers: go on at once
    (held,) = one.due_pulls()
    assert held.suspend


@dataclass
class BrokerModel:
    """A queue that answers pulls as brokers do, with a limit of bytes that cuts answers short."""

    latest: int
    most: int

    def answer(self, pull: Pull) -> Frame | None:
        if pull.offset > self.latest:
            return empty(ResponseCode.PULL_OFFSET_MOVED, self.latest, self.latest)
        if pull.offset == self.latest:
            return None if pull.suspend else empty(ResponseCode.PULL_NOT_FOUND, pull.offset, self.latest)
        count = min(pull.messages_max, self.most, self.latest - pull.offset)
        return found(pull.offset + count, self.latest, body=f"{pull.offset}:{pull.offset + count}".encode())


@settings(max_examples=examples(300))
@given(st.data())
def test_whatever_happens_all_offsets_come_once_and_in_order(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, 100), "start")
    model = BrokerModel(latest=start + data.draw(st.integers(0, 300)), most=data.draw(st.integers(1, 40)))
    window = data.draw(st.integers(1, 6), "window")
    one = fetch(start, window=window, pull_messages_max=data.draw(st.integers(1, 40), "pull"))
    under_way: list[Pull] = []
    position = start
    for _ in range(data.draw(st.integers(10, 60), "steps")):
        match data.draw(st.sampled_from(["pull", "answer", "collect", "grow", "lose"])):
            case "pull":
                under_way += one.due_pulls()
            case "answer" if under_way:
                pull = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
                pull.outcome = model.answer(pull)
                if pull.outcome is None:
                    under_way.append(pull)  # held
            case "collect":
                bound = one.messages_bound
                try:
                    answer = one.collect()
                except ConnectionLostError:
                    under_way.clear()
                    continue
                if answer is not None and answer.body:
                    first, last = map(int, answer.body.split(b":"))
                    assert first == position
                    assert last - first <= bound
                    position = last
            case "grow":
                model.latest += data.draw(st.integers(0, 100))
            case "lose" if under_way:
                under_way[0].outcome = ConnectionLostError("broker:1", "gone")
        assert len(one._pulls) <= window + 1  # one more while a gap is filled
    # Whatever happened before, undisturbed it gets to the end.
    for _ in range(2000):
        under_way += one.due_pulls()
        for pull in under_way:
            pull.outcome = pull.outcome or model.answer(pull)
        under_way = [pull for pull in under_way if pull.outcome is None]
        try:
            answer = one.collect()
        except ConnectionLostError:
            continue
        if answer is not None and answer.body:
            first, last = map(int, answer.body.split(b":"))
            assert first == position
            position = last
    assert position == model.latest
