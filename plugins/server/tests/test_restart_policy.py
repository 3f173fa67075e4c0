"""When a job that has failed is started again."""

from __future__ import annotations

from headrace.foundation.clock import ManualClock
from headrace_server.supervision.restart_policy import FAILURES_MAX, PAUSE_MAX, SETTLED_AFTER, RestartPolicy


def failed(policy: RestartPolicy) -> float:
    policy.started()
    policy.ended(failed=True)
    return policy.pause_seconds


def test_the_pause_doubles_with_each_failure() -> None:
    clock = ManualClock()
    policy = RestartPolicy(clock)
    pauses = []
    for _ in range(FAILURES_MAX - 1):
        pauses.append(failed(policy))
        assert not policy.may_start
        clock.advance(pauses[-1])
        assert policy.may_start
    assert pauses == [1, 2, 4, 8]
    assert max(pauses) <= PAUSE_MAX.total_seconds()


def test_after_five_failures_in_a_row_it_rests_for_good() -> None:
    clock = ManualClock()
    policy = RestartPolicy(clock)
    for _ in range(FAILURES_MAX):
        assert not policy.rests
        failed(policy)
        clock.advance(3600)
    assert policy.rests
    assert not policy.may_start
    policy.begin_anew()
    assert policy.may_start


def test_a_job_that_had_settled_counts_anew() -> None:
    clock = ManualClock()
    policy = RestartPolicy(clock)
    for _ in range(4):
        failed(policy)
        clock.advance(60)
    policy.started()
    clock.advance(SETTLED_AFTER.total_seconds())
    policy.ended(failed=True)
    assert policy.failures == 1


def test_a_short_run_between_failures_is_no_success() -> None:
    clock = ManualClock()
    policy = RestartPolicy(clock)
    failed(policy)
    policy.started()
    clock.advance(SETTLED_AFTER.total_seconds() - 1)
    policy.ended(failed=True)
    assert policy.failures == 2


def test_a_job_whose_process_was_silent_for_long_does_not_wait_once_more() -> None:
    clock = ManualClock()
    policy = RestartPolicy(clock)
    policy.started()
    policy.ended(failed=True, waited=True)
    assert (policy.failures, policy.may_start) == (1, True)
    policy.started()
    policy.ended(failed=True, waited=True)  # again and again: as any failure
    assert (policy.failures, policy.pause_seconds) == (2, 2)
