"""The contract of lease stores: named checks that the author of a store runs with pytest. Needs ``headrace-lease[contract]``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, ClassVar

from headrace.foundation.errors import RetriableError
from headrace_contract import Contract, optional_hook
from headrace_contract.contract import expect

from headrace_lease.store import LeaseStore

_SECOND = timedelta(seconds=1)
_DURATION = 10 * _SECOND
#: Names as users make them, and pairs that careless stores take for one.
_NAMES = ("a", "A", "ä", "a/b", "a%2Fb", "a b", "水🌊", "x" * 255, "x" * 254 + "y", "'; DROP TABLE leases; --")


class LeaseContract(Contract):
    """What every lease store must do. An author gives ``make_store`` and ``advance``.

    class TestMyStore(LeaseContract):
        def make_store(self):
            return MyStore(self.tmp_path / "leases", clock=self.clock)

        def advance(self, duration):
            self.clock.advance(duration)
    """

    #: Threads that ask for one lease at the same moment.
    rivals: ClassVar[int] = 8
    #: How often they do.
    rounds: ClassVar[int] = 10

    def make_store(self) -> LeaseStore:
        """Return a new store over the same place each time within one check, as another process would make it."""
        raise NotImplementedError

    def advance(self, duration: timedelta) -> None:
        """Move the store's clock forward. For a store whose clock cannot be moved: wait so long."""
        raise NotImplementedError

    @optional_hook
    def open_transaction(self) -> AbstractContextManager[Any]:
        """Return a new transaction of the kind that ``guard`` takes; it ends with the context. Only for stores that guard."""
        raise NotImplementedError

    def _take(self, store: LeaseStore, holder: str = "one", name: str = "job") -> int:
        __tracebackhide__ = True
        token = store.take(name, holder, _DURATION)
        expect(
            isinstance(token, int) and token > 0,
            expected="a free lease is given, with a token above 0",
            found=repr(token),
            mend="return the token from take() when nobody has the lease",
        )
        assert token is not None
        return token

    def _expect_refused(self, store: LeaseStore, holder: str, name: str = "job") -> None:
        __tracebackhide__ = True
        token = store.take(name, holder, _DURATION)
        expect(
            token is None,
            expected=f"None for {holder!r}, as somebody has the lease",
            found=repr(token),
            mend="give a lease only when it is free or has expired by the store's clock",
        )

    def test_a_held_lease_is_given_to_nobody(self) -> None:
        """Two holders at once are what leases are there to prevent, also two runs of one program under one name.

        Steps: take a lease; take it again under another and under the same holder, here and from another store object.
        """
        store, other = self.make_store(), self.make_store()
        self._take(store, "one")
        for asking in (store, other):
            self._expect_refused(asking, "two")
            self._expect_refused(asking, "one")

    def test_a_token_only_grows(self) -> None:
        """A resource refuses lower tokens. If one repeats or falls, a paused holder writes over the work of the next one.

        Steps: take a lease after a release, after it has expired, and from a new store object.
        """
        tokens = []
        for way in ("release", "expire", "release", "expire"):
            store = self.make_store()
            tokens.append(self._take(store, way))
            if way == "release":
                store.give_back("job", tokens[-1])
            else:
                self.advance(_DURATION + _SECOND)
        expect(
            tokens == sorted(set(tokens)),
            expected="each token is higher than all before it",
            found=repr(tokens),
            mend="keep the token of a name when its lease is released or expires; raise it in the step that takes the lease",
        )

    def test_an_expired_lease_is_given_to_the_next(self) -> None:
        """A holder that has died must not keep its lease.

        Steps: take a lease; nearly let it expire, and see that it is refused; let it expire, and take it.
        """
        store = self.make_store()
        self._take(store, "one")
        self.advance(_DURATION - 2 * _SECOND)
        self._expect_refused(store, "two")
        self.advance(3 * _SECOND)
        self._take(store, "two")

    def test_an_expired_lease_is_not_extended(self) -> None:
        """A holder that was late may have been replaced by one that was in time; it must acquire again, under a new token.

        Steps: let a lease expire; extend and give back under its token.
        """
        store = self.make_store()
        token = self._take(store)
        self.advance(_DURATION + _SECOND)
        found = (store.extend("job", token, _DURATION), store.give_back("job", token))
        expect(
            found == (False, False),
            expected="extend() and give_back() of an expired lease return False",
            found=repr(found),
            mend="compare the time of expiry with the store's clock in the same step",
        )

    def test_an_extended_lease_lasts_from_now(self) -> None:
        """A holder that renews keeps its lease, and one that dies after many renewals keeps it no longer than a duration.

        Steps: extend a lease twice, each before it expires; let a duration pass after the last time.
        """
        store = self.make_store()
        token = self._take(store)
        for _ in range(2):
            self.advance(_DURATION - 2 * _SECOND)
            expect(
                store.extend("job", token, _DURATION),
                expected="a lease that is held is extended",
                found="extend() returned False",
                mend="let the lease expire one duration after the last extend()",
            )
            self._expect_refused(store, "two")
        self.advance(_DURATION + _SECOND)
        self._take(store, "two")

    def test_a_released_lease_is_free_at_once(self) -> None:
        """Others need not wait after a clean stop.

        Steps: take a lease, give it back, take it as another; give the first one back once more.
        """
        store = self.make_store()
        token = self._take(store, "one")
        first = store.give_back("job", token)
        self._take(store, "two")
        again = store.give_back("job", token)
        expect(
            (first, again) == (True, False),
            expected="give_back() returns True once, then False",
            found=repr((first, again)),
            mend="free the lease only if it is held under the given token",
        )
        self._expect_refused(store, "three")

    def test_an_old_token_changes_nothing(self) -> None:
        """A holder that was paused wakes up and goes on with what it was doing.

        Steps: let a lease expire and take it as another; extend and give back under the old token, and under one that was never
        given. Passes when the new holder still has the lease, for as long as before.
        """
        store = self.make_store()
        old = self._take(store, "one")
        self.advance(_DURATION + _SECOND)
        new = self._take(store, "two")
        tried = []
        for token in (old, new + 1):
            tried += [store.extend("job", token, 100 * _DURATION), store.give_back("job", token)]
        expect(
            not any(tried),
            expected="False for every token but that of the holder",
            found=repr(tried),
            mend="compare the token in the same step that changes the lease",
        )
        self._expect_refused(store, "three")
        self.advance(_DURATION + _SECOND)
        self._take(store, "three")

    def test_names_are_kept_apart(self) -> None:
        """Names differ in case, in accents and at their end, and may look like commands.

        Steps: take a lease of each of many names; read each.
        """
        store = self.make_store()
        tokens = {name: self._take(store, f"holder of {name[-9:]}", name) for name in _NAMES}
        for name, token in tokens.items():
            record = store.read(name)
            found = record and (record.name, record.token, record.holder)
            expect(
                found == (name, token, f"holder of {name[-9:]}"),
                expected=f"the lease {name!r} with its own holder",
                found=repr(found),
                mend="compare names byte for byte, and give them to the store as parameters",
            )

    def test_read_tells_who_has_a_lease(self) -> None:
        """Operators look who has a lease, and holders whether they still have it.

        Steps: read a name that nobody took; take it, read; let it expire, read; take and give back, read.
        """
        store = self.make_store()
        unknown = store.read("job")
        expect(
            unknown is None, expected="None for an unknown name", found=repr(unknown), mend="make no lease in read()"
        )
        token = self._take(store, "one")
        held = store.read("job")
        expect(
            held is not None
            and (held.token, held.holder) == (token, "one")
            and timedelta(0) < held.time_left <= _DURATION,
            expected=f"token {token}, holder 'one', and up to {_DURATION} left",
            found=repr(held),
            mend="return the time until the lease expires, by the store's clock",
        )
        self.advance(_DURATION + _SECOND)
        self._expect_free(store, token)
        token = self._take(store, "two")
        store.give_back("job", token)
        self._expect_free(store, token)

    def _expect_free(self, store: LeaseStore, token: int) -> None:
        __tracebackhide__ = True
        found = store.read("job")
        expect(
            found is not None and (found.token, found.holder, found.time_left) == (token, None, timedelta(0)),
            expected=f"token {token}, no holder, no time left",
            found=repr(found),
            mend="a lease that is free or has expired has no holder; its token stays",
        )

    def test_of_rivals_one_wins(self) -> None:
        """Servers that start at the same moment ask for the same leases.

        Steps: several threads, each with a store of its own, take one lease at once; it is given back, and again. Passes when one
        thread wins in each round, and no token repeats. A thread may raise RetriableError.
        """
        stores = [self.make_store() for _ in range(self.rivals)]
        tokens: list[int] = []
        with ThreadPoolExecutor(self.rivals) as pool:
            for number in range(self.rounds):
                won = [token for token in pool.map(self._try_to_take, stores) if token is not None]
                expect(
                    len(won) == 1,
                    expected="one winner",
                    found=f"{len(won)} in round {number}: {won}",
                    mend="look whether the lease is free and take it in one step",
                )
                stores[0].give_back("job", won[0])
                tokens += won
        expect(
            tokens == sorted(set(tokens)),
            expected="tokens that grow",
            found=repr(tokens),
            mend="raise the token in the step that takes the lease",
        )

    @staticmethod
    def _try_to_take(store: LeaseStore) -> int | None:
        try:
            return store.take("job", "rival", _DURATION)
        except RetriableError:
            return None

    def test_guard_refuses_a_lost_lease(self) -> None:
        """Only a check inside of the holder's own transaction is safe from pauses between the check and the write.

        Steps: guard a transaction under the token of a lease that is held, was released, has expired, was taken by another.
        """
        self.need("open_transaction")
        store = self.make_store()
        tokens = [self._take(store, "one")]
        found = [self._guards(store, tokens[0])]
        store.give_back("job", tokens[0])
        found.append(self._guards(store, tokens[0]))
        tokens.append(self._take(store, "two"))
        self.advance(_DURATION + _SECOND)
        found.append(self._guards(store, tokens[1]))
        tokens.append(self._take(store, "three"))
        found += [self._guards(store, token) for token in tokens]
        expect(
            found == [True, False, False, False, False, True],
            expected="True only for the lease that is held",
            found=repr(found),
            mend="compare token and expiry in guard(), in the given transaction",
        )

    def _guards(self, store: LeaseStore, token: int) -> bool:
        with self.open_transaction() as transaction:
            return store.guard("job", token, transaction)

    def test_nobody_takes_a_lease_under_a_guard(self) -> None:
        """A holder that is paused after its guard still commits first: the next holder begins after that commit.

        Steps: guard a transaction, then let the lease expire, where the store's clock can be moved meanwhile; take it from
        another thread. Passes when that does not succeed before the transaction has ended.
        """
        self.need("open_transaction")
        store, other = self.make_store(), self.make_store()
        token = self._take(store, "one")
        ended: list[bool] = []
        with ThreadPoolExecutor(1) as pool:
            with self.open_transaction() as transaction:
                expect(
                    store.guard("job", token, transaction),
                    expected="True for a lease that is held",
                    found="False",
                    mend="compare the token",
                )
                self.advance_under_guard(transaction, _DURATION + _SECOND)
                taken = pool.submit(lambda: (self._take_when_possible(other), bool(ended)))
                # Give the rival time to succeed wrongly; a store that blocks or refuses uses all of it.
                waited = self._done_within(taken, timedelta(milliseconds=300))
                ended.append(True)
            new, after = taken.result(self.patience.total_seconds())
        expect(
            not waited and after and new > token,
            expected="the lease is taken after the guarded transaction has ended",
            found=f"token {new} {'before' if waited or not after else 'after'} its end",
            mend="lock the row of the lease in guard() until the transaction ends",
        )

    def advance_under_guard(self, transaction: Any, duration: timedelta) -> None:
        """Move the store's clock while ``transaction`` guards. Default: ``advance``. For a store that allows no other writer then."""
        self.advance(duration)

    def _take_when_possible(self, store: LeaseStore) -> int:
        def probe() -> int | None:
            try:
                return store.take("job", "two", _DURATION)
            except RetriableError:
                return None

        return self.eventually(
            probe, expected="the lease can be taken", mend="end the lock of guard() with its transaction"
        )

    @staticmethod
    def _done_within(future: Any, time: timedelta) -> bool:
        try:
            future.result(time.total_seconds())
        except TimeoutError:
            return False
        return True
