"""The options of the file source and the file sink."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from headrace.foundation.errors import DataError, OptionError
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.sink import SinkSettings

from headrace_file.file_system import scheme_of
from headrace_file.partitions import directory_of

#: The name of a rotated file is its old name, then a separator and a digit: ``app.log.1``, ``app.log-20240131.gz``.
DEFAULT_ROTATED = ("{name}.[0-9]*", "{name}-[0-9]*", "{name}_[0-9]*")
#: The end of the names of unfinished files.
UNFINISHED = ".tmp"
#: Names of unfinished files, and of the hidden files of this connector's own sink.
DEFAULT_EXCLUDE = (".*", "_*", f"*{UNFINISHED}")


class FileSourceSettings(Settings, frozen=True, kw_only=True):
    """What ``from_file`` takes beside the format's own options."""

    in_pictures: ClassVar[tuple[str, ...]] = ("path",)

    path: Annotated[str | tuple[str, ...], option("file, directory or glob (** includes folders), or a list of them")]
    framing: Annotated[
        Literal["auto", "newline", "csv", "cri", "docker-json", "journal-export", "multiline"],
        option(
            "what ends a record: a newline; a newline outside CSV quotes; the last part of a line of a container's log; the empty line "
            "after an entry of the journal; the line before the next that begins a record; auto: by first_line or "
            "continuation, that of the format of the same name, else a newline"
        ),
    ] = "auto"
    first_line: Annotated[
        str | None,
        option(
            "regular expression for the lines that begin a record of several lines; it may match anywhere in the line"
        ),
    ] = None
    continuation: Annotated[
        str | None,
        option("regular expression for the lines that belong to the record before them, in place of first_line"),
    ] = None
    record_lines_max: Annotated[int, option("number of lines after which a record of several lines ends", ge=1)] = 500
    compression: Annotated[
        Literal["auto", "none", "gzip", "zstd", "bzip2", "xz", "zip"],
        option("compression of the files; auto: recognised by the first bytes of each file"),
    ] = "auto"
    header: Annotated[bool, option("whether the first record of each file is a header with the column names")] = False
    columns_by: Annotated[
        Literal["order", "header"],
        option(
            "how the fields of csv find their columns: by the order of the schema, with which the header is compared; or by the names in "
            "the header of each file, in whatever order"
        ),
    ] = "order"
    missing_columns: Annotated[
        Literal["fail", "null"],
        option(
            "with columns_by='header', what happens to a column that a header does not name: the file becomes a broken queue, or its "
            "rows have NULL there"
        ),
    ] = "fail"
    skip_lines: Annotated[int, option("number of lines to skip at the start of each file, before the header", ge=0)] = 0
    blank_lines: Annotated[
        Literal["skip", "keep"],
        option("whether empty lines are skipped (but counted in the record numbers) or are records"),
    ] = "skip"
    last_line: Annotated[
        Literal["auto", "wait", "take"],
        option(
            "what happens to a last line without newline: wait for the newline, take the line at once, or auto: take it in "
            "runs that end with the input, and when the file has not changed for last_line_timeout"
        ),
    ] = "auto"
    last_line_timeout: Annotated[
        timedelta, option("how long a file must be unchanged before auto takes its last line")
    ] = timedelta(seconds=30)
    recursive: Annotated[bool, option("whether the folders of directories are read, too")] = False
    exclude: Annotated[
        tuple[str, ...], option("patterns of file and folder names that directories and globs leave out")
    ] = DEFAULT_EXCLUDE
    follow_symlinks: Annotated[
        bool, option("whether links in directories and globs may lead to files outside them, as in /var/log/containers")
    ] = False
    rotated: Annotated[
        tuple[str, ...],
        option(
            "patterns of the names of rotated files in the same directory; they begin with {name} or {stem} and may contain "
            "{suffix}"
        ),
    ] = DEFAULT_ROTATED
    rotate_wait: Annotated[
        timedelta, option("how long a rotated file must be unchanged before it counts as finished")
    ] = timedelta(seconds=5)
    if_lost: Annotated[
        Literal["fail", "skip"],
        option(
            "what happens when records were removed before they were read: the file becomes a broken queue, or the loss is "
            "logged and reading continues"
        ),
    ] = "fail"
    max_record_bytes: Annotated[
        int,
        option(
            "maximum size of a record in bytes; longer records go to the dead letters; at least the format's max_body_bytes",
            ge=64,
        ),
    ] = 16 * 1024**2
    read_bytes: Annotated[int, option("maximum number of bytes in one read", ge=1024)] = 8 * 1024**2
    max_open_files: Annotated[int, option("maximum number of files kept open between polls", ge=1)] = 256
    poll_interval: Annotated[timedelta, option("pause between two checks of a file that has no new records")] = (
        timedelta(milliseconds=100)
    )
    storage_options: Annotated[
        dict[str, Any],
        option(
            'options of the store that holds remote files, such as {"endpoint_url": "…"}; "${VARIABLE}" reads an environment variable'
        ),
    ] = msgspec.field(default_factory=dict)
    list_interval: Annotated[
        timedelta, option("how often a store is asked which remote files there are, and how large; it may cost money")
    ] = timedelta(seconds=10)
    csv_delimiter: Annotated[str | None, option("field delimiter for csv framing; default: that of the format")] = None
    csv_quote: Annotated[str | None, option("quote character for csv framing; default: that of the format")] = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths as a tuple, also when one was given as a text."""
        return (self.path,) if isinstance(self.path, str) else self.path

    def validate(self) -> None:
        if not self.paths or not all(self.paths):
            raise OptionError("no path is given", plugin="file", option="path")
        for pattern in self.rotated:
            if not pattern.startswith(("{name}", "{stem}")) or "/" in pattern:
                raise OptionError(
                    f"the pattern {pattern!r} does not begin with {{name}} or {{stem}}, or holds a '/'",
                    plugin="file",
                    option="rotated",
                    hint="for example '{name}.[0-9]*' or '{stem}-[0-9]*{suffix}'",
                )
        if self.first_line is not None and self.continuation is not None:
            raise OptionError(
                "it cannot be combined with first_line",
                plugin="file",
                option="continuation",
                hint="give only one of them",
            )
        for name in ("csv_delimiter", "csv_quote"):
            value = getattr(self, name)
            if value is not None and (len(value.encode()) != 1 or value in "\r\n"):
                raise OptionError(f"{value!r} is not one ASCII character", plugin="file", option=name)


class FileSinkSettings(SinkSettings, frozen=True, kw_only=True):
    """What ``to_file`` takes. Each flush of a queue makes one part file, so batches are larger than for other sinks."""

    in_pictures: ClassVar[tuple[str, ...]] = ("path",)

    path: Annotated[str, option("directory of the part files; created if it does not exist")]
    format: Annotated[
        str, option("format of the part files: json, csv, parquet, or any installed codec that can encode")
    ] = "json"
    format_options: Annotated[dict[str, Any], option("options of the format's codec")] = msgspec.field(
        default_factory=dict
    )
    partition_by: Annotated[
        tuple[str, ...],
        option(
            "columns by which rows are divided into directories such as day=2024-01-31; they are in the names of the directories, not in "
            "the files"
        ),
    ] = ()
    partition: Annotated[
        dict[str, str | None],
        option(
            "values of the one partition that is written, as texts by column: the rows go into its directory below path, have "
            "positions of their own, and replace_output removes only these"
        ),
    ] = msgspec.field(default_factory=dict)
    compression: Annotated[
        Literal["none", "gzip", "zstd"] | None,
        option("compression of the part files; None: zstd inside Parquet, none for other formats"),
    ] = None
    header: Annotated[bool, option("whether each csv part file begins with the column names")] = True
    prefix: Annotated[str, option("start of the names of part files", pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$")] = "part"
    writer: Annotated[str, option("name under which the positions are stored; default: the names of job and sink")] = ""
    changes: Annotated[
        Literal["refuse", "column"],
        option(
            "what happens to a changelog (rows that change earlier rows): refuse the job, or write all rows, with the kind "
            "of change in a column; formats of changes, such as debezium-json, write it without this"
        ),
    ] = "refuse"
    change_column: Annotated[
        str,
        option(
            "name of the column for changes='column'; it holds insert, update_before, update_after or delete",
            pattern=r"^(?!__hr_).+$",
        ),
    ] = "change"
    fsync: Annotated[
        bool, option("whether rows survive a crash of the machine; with False they survive only a crash of the process")
    ] = True
    lock_timeout: Annotated[timedelta, option("how long to wait for another writer of the same queue")] = timedelta(
        seconds=10
    )
    batch_size: Annotated[int, option("maximum number of rows in one part file", ge=1)] = 100_000
    max_cached_rows: Annotated[int, option("rows cached per queue before a flush is forced", ge=1)] = 100_000
    max_cached_bytes: Annotated[int, option("bytes cached per queue before a flush is forced", ge=1)] = 64 * 1024**2
    flush_interval: Annotated[timedelta, option("longest time that a row waits in the cache")] = timedelta(seconds=10)

    @property
    def directory(self) -> str:
        """The directory of the part files: that of the partition, where one is given."""
        return os.path.join(self.path, directory_of(self.partition)) if self.partition else self.path

    def validate(self) -> None:
        if not self.path:
            raise OptionError("no path is given", plugin="file", option="path")
        if scheme := scheme_of(self.path):
            raise OptionError(
                f"the sink does not write to {scheme}://: a part file and its position cannot be stored in one step there",
                plugin="file",
                option="path",
                hint="write to a local directory, and move finished part files from there",
            )
        try:
            _ = self.directory
        except DataError as error:
            raise OptionError(error.message, plugin="file", option="partition") from error
