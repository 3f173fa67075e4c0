"""The contract of state stores that a second process may read while the first one writes."""

from __future__ import annotations

import threading

from headrace.interfaces.state_store import ReadableStateStore

from headrace_contract.contract import expect, shortened
from headrace_contract.state_store import StateStoreContract

_SHARD, _OTHER = "key_by/0", "key_by/1"
_REPLACED_TIMES = 100


def _content(number: int) -> bytes:
    return bytes((number * 31 + place * 7) % 256 for place in range(60))


class ReadableStateStoreContract(StateStoreContract):
    """What a ReadableStateStore must do in addition to every state store. An author gives ``make_store``.

    Stores of one check are open at the same time: one is that of the process that runs, another that of the next process.

    class TestMyStore(ReadableStateStoreContract):
        def make_store(self):
            return MyReadableStore(MySettings(path=str(self.tmp_path / "state")))
    """

    def make_store(self) -> ReadableStateStore:
        """Return a new store over the same place each time within one check."""
        raise NotImplementedError

    def _expect_stored(
        self, store: ReadableStateStore, shard: str, version: int, wanted: tuple[bytes, bool] | None, mend: str
    ) -> None:
        __tracebackhide__ = True
        found = store.stored(shard, version)
        expect(
            found == wanted,
            expected=f"stored({shard!r}, {version}) is {shortened(wanted)}",
            found=shortened(found),
            mend=mend,
        )

    def test_a_second_store_reads_versions_one_by_one(self) -> None:
        """The next process reads what the running one has saved, version by version, and asks for some that are not there.

        Steps: make two stores. The second one asks for a version while nothing is stored. The first one saves snapshot
        1, delta 2 and an empty delta 3 of a shard, and version 1 of another. The second one asks for each of them, for
        a version that was never saved, and for a shard that does not exist. Passes when each version has its content
        and kind, and the others are None.
        """
        writer, reader = self.make_store(), self.make_store()
        absent = "return None for a version that is not there, also before anything was saved"
        self._expect_stored(reader, _SHARD, 1, None, absent)
        for number, content in ((1, _content(1)), (2, _content(2)), (3, b"")):
            writer.save(_SHARD, number, content, snapshot=number == 1)
        writer.save(_OTHER, 1, _content(9))
        mend = "read the place itself, not what this object has seen: another process has saved it"
        self._expect_stored(reader, _SHARD, 1, (_content(1), True), mend)
        self._expect_stored(reader, _SHARD, 2, (_content(2), False), mend)
        self._expect_stored(reader, _SHARD, 3, (b"", False), "an empty version is there: return its content, not None")
        self._expect_stored(reader, _OTHER, 1, (_content(9), False), "keep the shards apart")
        self._expect_stored(reader, _SHARD, 4, None, absent)
        self._expect_stored(reader, "key_by/2", 1, None, absent)
        for store in (writer, reader):
            store.close()

    def test_a_version_is_read_as_it_is_now(self) -> None:
        """The running process replaces and removes versions while the next one reads.

        Steps: the first store saves snapshot 1 and delta 2, the second one reads both; the first one saves 2 again as a
        snapshot, and removes what is before it; the second one reads both again. Passes when it finds the new 2, and no 1.
        """
        writer, reader = self.make_store(), self.make_store()
        mend = "read each time; keep no content of earlier calls"
        writer.save(_SHARD, 1, _content(1), snapshot=True)
        writer.save(_SHARD, 2, _content(2))
        self._expect_stored(reader, _SHARD, 1, (_content(1), True), mend)
        self._expect_stored(reader, _SHARD, 2, (_content(2), False), mend)
        writer.save(_SHARD, 2, b"again", snapshot=True)
        writer.remove(_SHARD, before=2)
        self._expect_stored(reader, _SHARD, 2, (b"again", True), mend)
        self._expect_stored(reader, _SHARD, 1, None, mend)
        for store in (writer, reader):
            store.close()

    def test_reading_changes_nothing(self) -> None:
        """The running process goes on whatever the next one reads, and however often that is started and given up.

        Steps: the first store saves snapshot 1 and the deltas 2 to 4; a second one reads 2 and a missing 9, and is closed;
        the first one saves 5; a third one loads. Passes when all of 1 to 5 are there.
        """
        writer, reader = self.make_store(), self.make_store()
        versions = [(number, _content(number), number == 1) for number in range(1, 6)]
        for number, content, whole in versions[:4]:
            writer.save(_SHARD, number, content, snapshot=whole)
        reader.stored(_SHARD, 2)
        reader.stored(_SHARD, 9)
        reader.close()
        writer.save(_SHARD, *versions[4][:2])
        other = self.make_store()
        mend = "stored() only reads: forget nothing that is newer, lock nothing, and let close() remove nothing"
        self._expect(list(other.load(_SHARD)), versions, mend)
        for store in (writer, other):
            store.close()

    def test_going_on_forgets_what_is_newer(self) -> None:
        """Versions that are newer than the checkpoint belong to no finished checkpoint, and would be applied by a later load.

        Steps: a store saves snapshot 1, delta 2, snapshot 3 and delta 4 of two shards, and is closed. Another one reads
        1 and 2 of the first shard, calls ``go_on_from(…, 2)`` and saves delta 3. A third one loads both shards. Passes
        when the first shard has 1, 2 and the new 3, and the second one has 3 and 4 still.
        """
        store = self.make_store()
        versions = [(number, _content(number), number in (1, 3)) for number in range(1, 5)]
        for shard in (_SHARD, _OTHER):
            for number, content, whole in versions:
                store.save(shard, number, content, snapshot=whole)
        store.close()
        following = self.make_store()
        following.stored(_SHARD, 1)
        following.stored(_SHARD, 2)
        following.go_on_from(_SHARD, 2)
        following.save(_SHARD, 3, b"again")
        other = self.make_store()
        for shard, wanted in ((_SHARD, [*versions[:2], (3, b"again", False)]), (_OTHER, versions[2:])):
            mend = f"go_on_from() must remove every version of this shard that is newer, and no other (seen in {shard})"
            self._expect(list(other.load(shard)), wanted, mend)
        for each in (following, other):
            each.close()

    def test_going_on_where_nothing_is_newer(self) -> None:
        """Most shards have nothing newer than the checkpoint, and some have no version at all.

        Steps: a store saves snapshot 1 and delta 2 and is closed. Another one calls ``go_on_from(…, 2)``, and
        ``go_on_from(…, 5)`` for a shard without versions, and saves 3 of the first shard and 6 of the second. A third
        one loads both. Passes when 1 to 3 and 6 are there.
        """
        store = self.make_store()
        store.save(_SHARD, 1, _content(1), snapshot=True)
        store.save(_SHARD, 2, _content(2))
        store.close()
        following = self.make_store()
        for shard, version in ((_SHARD, 2), (_OTHER, 5)):
            following.go_on_from(shard, version)
            following.save(shard, version + 1, _content(version + 1))
        other = self.make_store()
        mend = "go_on_from() keeps the versions up to the given one, and knows shards without any"
        self._expect(list(other.load(_SHARD)), [(number, _content(number), number == 1) for number in (1, 2, 3)], mend)
        self._expect(list(other.load(_OTHER)), [(6, _content(6), False)], mend)
        for each in (following, other):
            each.close()

    def test_reading_beside_a_writer_disturbs_neither(self) -> None:
        """Both work at the same time: the one that runs saves, replaces and removes while the next one reads.

        Steps: a thread saves 100 versions, each of them first as a delta and then as a snapshot, and removes older ones; meanwhile
        another store reads them again and again. Passes when neither raises an error, and the last version is read as saved.
        """
        writer, reader = self.make_store(), self.make_store()
        done, errors = threading.Event(), list[Exception]()

        def save() -> None:
            try:
                for number in range(1, _REPLACED_TIMES + 1):
                    writer.save(_SHARD, number, _content(number))
                    writer.save(_SHARD, number, _content(-number), snapshot=True)
                    writer.remove(_SHARD, before=number)
            except Exception as error:  # the thread of the check reports it
                errors.append(error)
            finally:
                done.set()

        def read() -> bool:
            while True:  # at least once, also if the writer has ended before
                ended = done.is_set()
                for number in range(1, _REPLACED_TIMES + 1):
                    reader.stored(_SHARD, number)
                if ended:
                    return True

        thread = threading.Thread(target=save, name="contract writer", daemon=True)
        thread.start()
        mend = "a version that goes away while it is read is None; take no lock that the writer needs or holds"
        self.in_thread(read, what="reading goes on while another store saves, replaces and removes", mend=mend)
        thread.join(self.patience.total_seconds())
        expect(
            not errors and not thread.is_alive(),
            expected="saving goes on while another store reads",
            found=repr(errors[0]) if errors else "it does not return",
            mend="let a reader hold no lock, and no file that the writer must replace",
        )
        last = (_content(-_REPLACED_TIMES), True)
        self._expect_stored(reader, _SHARD, _REPLACED_TIMES, last, "read the version that was saved last")
        for store in (writer, reader):
            store.close()
