"""The record of the jobs that write to a directory of part files: with which definition each writer's rows were made."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

from headrace.foundation.directories import make_directories
from headrace.foundation.durable_files import replace_durably
from headrace.foundation.errors import JobError
from headrace.interfaces.output_definition import InputRead, OutputDefinition

from headrace_file.partitions import folders_of
from headrace_file.parts import HIDDEN, is_part

_FORMAT = 1
_NEW = ".new"
_EARLIER_MAX = 20


class OutputRecord:
    """The record of one writer in a directory. Used by the process that starts a job, before anything is read."""

    def __init__(self, directory: str, writer: str) -> None:
        self._directory = Path(directory)
        self._writer = writer
        self._folder = self._directory / HIDDEN / "jobs"
        self._path = self._folder / f"{hashlib.blake2b(writer.encode(), digest_size=8).hexdigest()}"

    def adopt(self, output: OutputDefinition) -> InputRead | None:
        """Compare a job with the stored record, and store the job; see ``Sink.adopt``. Raises JobError; OSError."""
        if output.replace:
            self._remove_everything()
        stored = self._read()
        if stored is not None and self._has_positions():
            if not output.goes_on(stored["digest"], stored["earlier"]):
                raise self._refused(
                    f"{self._directory} holds the output of another job with the same name: its rows would be taken for those of "
                    f"this job\n{output.difference_from(stored['definition'])}"
                )
            if output.repeats_results and self._has_parts():
                complete: InputRead | None = stored["complete"]
                if complete is None or stored["digest"] != output.digest:
                    raise self._refused(
                        f"{self._directory} holds results of this job, from a run that did not reach the end of its input, or "
                        "from several runs. Without a checkpoint this run writes all of them again, so they would be stored twice"
                    )
                return complete
        if stored is None or stored["digest"] != output.digest or stored["complete"] is not None:
            known = [] if stored is None or output.continued is None else [stored["digest"], *stored["earlier"]]
            earlier = [digest for digest in dict.fromkeys(known) if digest != output.digest][:_EARLIER_MAX]
            self._write({"digest": output.digest, "definition": output.definition, "earlier": earlier})
        return None

    def completed(self, read: InputRead) -> None:
        """Store that all results over an input are written. Raises OSError."""
        stored = self._read()
        if stored is not None:
            self._write({**stored, "complete": read.to_json()})

    def _refused(self, message: str) -> JobError:
        return JobError(
            message,
            plugin="file",
            option="path",
            hint="replace_output=True (--replace-output) removes the existing files first; writer='…' (an option of to_file) keeps both; "
            "or name another directory",
        )

    def _remove_everything(self) -> None:
        """Remove the parts and the positions of a directory in which nobody else writes. Raises JobError."""
        others = [path.name for path in self._folder.glob("*") if path != self._path and path.suffix != _NEW]
        if others:
            raise JobError(
                f"{self._directory} holds rows of other jobs too ({len(others)}): they are not removed",
                plugin="file",
                option="replace_output",
                hint="remove the unwanted files by hand, or name another directory",
            )
        for folder in self._folders():
            for path in [*folder.iterdir()]:
                if is_part(path.name) and path.is_file():
                    path.unlink(missing_ok=True)
        # The positions last: after a crash in between, removed rows must not count as written.
        for name in ("tmp", "state"):
            for path in [*(self._directory / HIDDEN / name).glob("*")]:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)

    def _has_positions(self) -> bool:
        return self._has_parts() or any((self._directory / HIDDEN / "state").glob("*"))

    def _has_parts(self) -> bool:
        return any(is_part(path.name) for folder in self._folders() for path in folder.iterdir())

    def _folders(self) -> list[Path]:
        """Return the directory and those of its partitions."""
        return [Path(each) for each in folders_of(str(self._directory))] if self._directory.is_dir() else []

    def _read(self) -> dict[str, Any] | None:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        head, _, text = content.partition(b"\n")
        try:
            if int(head, 16) != crc32(text):
                raise ValueError("its checksum does not match")
            stored: dict[str, Any] = json.loads(text)
            if stored["format"] > _FORMAT:
                raise ValueError(f"a newer version of headrace wrote it (format {stored['format']})")
            earlier = [str(each) for each in stored.get("earlier", ())]
            complete = InputRead.from_json(stored.get("complete"))
            definition = dict(stored["definition"])
            return {"digest": str(stored["digest"]), "definition": definition, "earlier": earlier, "complete": complete}
        except (ValueError, KeyError, TypeError) as error:
            raise JobError(
                f"{self._path} is damaged: {error}",
                plugin="file",
                hint="the file records which job wrote to this directory; remove it only if this job, unchanged, wrote all files there",
            ) from error

    def _write(self, content: Mapping[str, Any]) -> None:
        value = {"format": _FORMAT, "writer": self._writer, **content}
        text = json.dumps(value, default=str).encode()
        make_directories(self._folder)
        new = self._path.with_suffix(f".{os.getpid()}{_NEW}")
        replace_durably(self._path, f"{crc32(text):08x}\n".encode() + text, temporary=new, private=False)
