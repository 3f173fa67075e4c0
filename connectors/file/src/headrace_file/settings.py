"""The options of the file source and the file sink."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.sink import SinkSettings

#: A file that was rotated carries its old name and then a separator and a digit: ``app.log.1``, ``app.log-20240131.gz``.
DEFAULT_ROTATED = ("{name}.[0-9]*", "{name}-[0-9]*", "{name}_[0-9]*")
#: What writers use for files that are not finished, and what this connector's own sink hides.
DEFAULT_EXCLUDE = (".*", "_*", "*.tmp")


class FileSourceSettings(Settings, frozen=True, kw_only=True):
    """What ``from_file`` takes beside the format's own options."""

    path: Annotated[str | tuple[str, ...], option("file, directory or glob (** goes into folders), or a list of them")]
    framing: Annotated[
        Literal["auto", "newline", "csv"],
        option("what ends a record: a newline, or a newline outside CSV quotes; auto: csv for format 'csv'"),
    ] = "auto"
    compression: Annotated[
        Literal["auto", "none", "gzip", "zstd"], option("auto looks at the first bytes of each file")
    ] = "auto"
    header: Annotated[bool, option("the first record of each file names the columns and is not a record")] = False
    skip_lines: Annotated[
        int, option("lines at the start of each file that are no records, before the header", ge=0)
    ] = 0
    blank_lines: Annotated[
        Literal["skip", "keep"], option("whether empty lines are left out (they keep their number) or are records")
    ] = "skip"
    last_line: Annotated[
        Literal["auto", "wait", "take"],
        option(
            "a last line without newline: wait for its newline, take it as it is, or auto: take it in runs that end "
            "with the input and when the file has been quiet for last_line_timeout"
        ),
    ] = "auto"
    last_line_timeout: Annotated[timedelta, option("how long a file is quiet before auto takes its last line")] = (
        timedelta(seconds=30)
    )
    recursive: Annotated[bool, option("whether directories are read with their folders")] = False
    exclude: Annotated[tuple[str, ...], option("names of files and folders left out of directories and globs")] = (
        DEFAULT_EXCLUDE
    )
    follow_symlinks: Annotated[
        bool, option("whether links in a directory or glob may lead out of it, as in /var/log/containers")
    ] = False
    rotated: Annotated[
        tuple[str, ...],
        option("names that rotation gives to a file in its directory; begin with {name} or {stem}, may use {suffix}"),
    ] = DEFAULT_ROTATED
    rotate_wait: Annotated[timedelta, option("how long a rotated file must be quiet before it counts as finished")] = (
        timedelta(seconds=5)
    )
    if_lost: Annotated[
        Literal["fail", "skip"],
        option("when records are gone before they were read: the file is a broken queue, or log and go on"),
    ] = "fail"
    max_record_bytes: Annotated[
        int, option("longer records are cut and refused; never below the format's max_body_bytes", ge=64)
    ] = 16 * 1024**2
    read_bytes: Annotated[int, option("most bytes read at once", ge=1024)] = 8 * 1024**2
    max_open_files: Annotated[int, option("files kept open between polls", ge=1)] = 256
    poll_interval: Annotated[timedelta, option("how often a waiting read looks at its file")] = timedelta(
        milliseconds=100
    )
    csv_delimiter: Annotated[str | None, option("field separator for csv framing; default: the format's")] = None
    csv_quote: Annotated[str | None, option("quote character for csv framing; default: the format's")] = None

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
        for name in ("csv_delimiter", "csv_quote"):
            value = getattr(self, name)
            if value is not None and (len(value.encode()) != 1 or value in "\r\n"):
                raise OptionError(f"{value!r} is not one ASCII character", plugin="file", option=name)


class FileSinkSettings(SinkSettings, frozen=True, kw_only=True):
    """What ``to_file`` takes. Each flush of a queue makes one part file, so batches are larger than for other sinks."""

    path: Annotated[str, option("directory of the part files; made when it is missing")]
    format: Annotated[str, option("json, csv, parquet, or any installed codec that can encode")] = "json"
    format_options: Annotated[dict[str, Any], option("options of the format's codec")] = msgspec.field(
        default_factory=dict
    )
    compression: Annotated[
        Literal["none", "gzip", "zstd"] | None,
        option("of the part files; None: zstd inside Parquet, none for other formats"),
    ] = None
    header: Annotated[bool, option("whether each csv part begins with the column names")] = True
    prefix: Annotated[
        str, option("what the names of part files begin with", pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$")
    ] = "part"
    writer: Annotated[str, option("under which name positions are kept; default: that of job and sink")] = ""
    changes: Annotated[
        Literal["refuse", "column"],
        option("rows that change earlier ones: refuse the job, or write all with a column that says what each does"),
    ] = "refuse"
    change_column: Annotated[
        str, option("that column: insert, update_before, update_after or delete", pattern=r"^(?!__hr_).+$")
    ] = "change"
    fsync: Annotated[
        bool, option("whether rows survive a crash of the machine; without it they survive one of the process")
    ] = True
    lock_timeout: Annotated[timedelta, option("how long to wait for another writer of the same queue")] = timedelta(
        seconds=10
    )
    batch_size: Annotated[int, option("most rows in one part file", ge=1)] = 100_000
    max_cached_rows: Annotated[int, option("rows cached per queue before a flush is forced", ge=1)] = 100_000
    max_cached_bytes: Annotated[int, option("bytes cached per queue before a flush is forced", ge=1)] = 64 * 1024**2
    flush_interval: Annotated[timedelta, option("longest time a row waits in the cache")] = timedelta(seconds=10)

    def validate(self) -> None:
        if not self.path:
            raise OptionError("no path is given", plugin="file", option="path")
