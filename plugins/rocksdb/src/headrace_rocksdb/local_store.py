"""The local store: one RocksDB for the rows of all shards of a process that do not fit in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from headrace.foundation.errors import CheckpointError
from headrace.foundation.storage_faults import storage_trouble
from headrace.interfaces.local_store import LocalStore

#: How the memory is divided: tables in memory that are not written yet (up to three), the rest for blocks of files, indexes and filters.
_WRITE_SHARE = 8
_WRITE_BYTES_MIN, _WRITE_BYTES_MAX = 1024**2, 64 * 1024**2
_WRITE_BUFFERS = 3
_BLOCK_BYTES = 4096
_BITS_PER_KEY = 10


class RocksLocalStore(LocalStore):
    """Every block has a checksum; a batch is in the log completely or not at all. Filters say of most keys that they are not there."""

    def __init__(self, directory: str, memory_bytes: int) -> None:
        self._directory = directory
        self._opened: Any = None
        from rocksdict import DBCompressionType, Rdict, WriteOptions

        writing = WriteOptions()
        writing.sync = False  # the operating system has it: enough for a cache that need not outlive the machine
        try:
            options = _options(memory_bytes)
            options.set_compression_type(DBCompressionType.none())
            self._opened = Rdict(directory, options)
        except Exception as error:  # rocksdict raises plain exceptions with RocksDB's text
            raise self._failed(error, "opened") from error
        self._opened.set_write_options(writing)

    def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        try:
            found: list[bytes | None] = self._opened.get(list(keys))
        except Exception as error:
            raise self._failed(error, "read") from error
        return found

    def write(self, keys: Sequence[bytes], values: Sequence[bytes], removed: Sequence[bytes] = ()) -> None:
        from rocksdict import WriteBatch

        batch = WriteBatch(raw_mode=True)
        deque(map(batch.delete, removed), maxlen=0)
        deque(map(batch.put, keys, values), maxlen=0)
        try:
            self._opened.write(batch)
        except Exception as error:
            raise self._failed(error, "written") from error

    def scan(self, begin: bytes, end: bytes, rows: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        from rocksdict import ReadOptions

        reading = ReadOptions()
        reading.set_iterate_upper_bound(end)
        try:
            items = iter(self._opened.items(from_key=begin, read_opt=reading))
            while some := list(islice(items, rows)):
                keys, values = zip(*some, strict=True)
                yield list(keys), list(values)
        except Exception as error:
            raise self._failed(error, "read") from error

    def clear(self, begin: bytes, end: bytes) -> None:
        try:
            self._opened.delete_range(begin, end)
        except Exception as error:
            raise self._failed(error, "written") from error

    def close(self) -> None:
        if self._opened is None:
            return
        opened, self._opened = self._opened, None
        try:
            opened.close()
        except Exception as error:  # what it has not written yet, for which there is no room
            raise self._failed(error, "written") from error

    def _failed(self, error: Exception, what: str) -> CheckpointError:
        self.damaged = True  # of a write that failed nobody knows how much is there
        trouble = storage_trouble(str(error))
        if trouble is not None:
            return CheckpointError(
                f"the local rows of the state in {self._directory!r} cannot be {what}: {trouble[0]}",
                plugin="rocksdb",
                option="state_memory",
                hint=f"{trouble[1]}, or move the job's checkpoint directory to a larger disk; the job continues from its checkpoint",
            )
        return CheckpointError(
            f"the local rows of the state in {self._directory!r} cannot be {what}: {error}",
            plugin="rocksdb",
            option="state_memory",
            hint="these files are a copy of the checkpoint's state: check the disk, or remove the directory while the job is stopped",
        )


def _options(memory_bytes: int) -> Any:
    from rocksdict import BlockBasedOptions, Cache, Options

    options = Options(raw_mode=True)
    write_bytes = min(max(memory_bytes // _WRITE_SHARE, _WRITE_BYTES_MIN), _WRITE_BYTES_MAX)
    options.set_write_buffer_size(write_bytes)
    options.set_max_write_buffer_number(_WRITE_BUFFERS)
    options.increase_parallelism(2)
    options.set_max_open_files(1000)
    blocks = BlockBasedOptions()
    blocks.set_block_size(_BLOCK_BYTES)
    blocks.set_bloom_filter(_BITS_PER_KEY, False)
    blocks.set_block_cache(Cache(max(memory_bytes - _WRITE_BUFFERS * write_bytes, _WRITE_BYTES_MIN)))
    # Else indexes and filters would come on top of the cache, the more the larger the state is.
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options.set_block_based_table_factory(blocks)
    return options
