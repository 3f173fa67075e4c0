"""Makes plug-in projects for ``headrace new`` from the templates beside this module."""

from __future__ import annotations

import json
import keyword
import re
import shlex
from collections.abc import Iterator, Mapping
from importlib.metadata import distribution
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit
from urllib.request import url2pathname

from headrace.foundation.errors import JobError
from headrace.interfaces.registry import default_registry
from headrace.jobs.dsl import Stream

from headrace_console.reporting import say

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NAME_LENGTH_MAX = 40
_SUFFIX = ".template"
_OTHER_NAME = "choose another name"
#: By kind of plug-in: an example of use; below: its description, the module with its code, and its dependencies.
_USAGE: Mapping[str, str] = {
    "sink": 'stream.to_{identifier}("rows.ndjson")',
    "source": 'hr.stream("team", "job").from_{identifier}("spool", format="json", schema={{…}})',
    "connector": 'hr.stream("team", "job").from_{identifier}("spool", format="json", schema={{…}}).to_{identifier}("spool", queue="out")',
    "operator": 'stream.{identifier}("column", length=40)',
    "stateful-operator": 'stream.key_by("user").{identifier}("number")',
    "udf": 'stream.select(host="{identifier}(url)")',
    "codec": 'hr.stream("team", "job").from_file("records", format="{identifier}", schema={{…}})',
    "state-store": 'job.start("light", checkpoint="state/", state_store="{identifier}")',
    "language": "headrace run job.{identifier}",
    "backend": 'job.run("{identifier}", jobs_max=2)',
}
_DESCRIPTION: Mapping[str, str] = {
    "sink": "The sink {name} for headrace.",
    "source": "The source {name} for headrace.",
    "connector": "The source and the sink {name} for headrace.",
    "operator": "The verb {name} for headrace.",
    "stateful-operator": "The verb {name} for headrace: it keeps state by key.",
    "udf": "The function {name} for SQL expressions in headrace.",
    "codec": "The format {name} for headrace.",
    "state-store": "The state store {name} for headrace.",
    "language": "The language {name} for jobs of headrace.",
    "backend": "The backend {name} for headrace.",
}
_KIND_MODULE: Mapping[str, str] = {
    "sink": "sink",
    "source": "source",
    "connector": "source",
    "operator": "operator",
    "stateful-operator": "stateful_operator",
    "udf": "functions",
    "codec": "codec",
    "state-store": "state_store",
    "language": "language",
    "backend": "backend",
}
#: What the name of the class ends in.
_CLASS_SUFFIX: Mapping[str, str] = {
    "sink": "Sink", "source": "Source", "codec": "Codec", "state-store": "StateStore", "language": "Language", "backend": "Backend",
}  # fmt: skip
#: What the registry calls things of this kind, where it is another word.
_OFFERED_AS: Mapping[str, tuple[str, ...]] = {
    "udf": ("function",),
    "state-store": ("state store",),
    "stateful-operator": ("operator",),
    "connector": ("source", "sink"),
}
#: Whose files a project has, if not only those of its kind: a later one replaces what an earlier one has under the same name.
_PARTS: Mapping[str, tuple[str, ...]] = {"connector": ("source", "sink", "connector")}
_DEPENDENCIES: Mapping[str, str] = {
    "sink": '"headrace"',
    "source": '"headrace", "numpy>=1.26"',
    "connector": '"headrace", "numpy>=1.26"',
    "operator": '"headrace", "polars>=2.1"',
    "udf": '"headrace"',
    "codec": '"headrace", "numpy>=1.26", "polars>=2.1"',
    "state-store": '"headrace"',
    "stateful-operator": '"headrace", "polars>=2.1", "pyarrow>=20"',
    "language": '"headrace", "headrace-columnar"',
    "backend": '"headrace", "headrace-light"',
}
#: Plug-ins of headrace that the project or its tests need, by the folder in a clone.
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "language": ("plugins/columnar", "plugins/light", "connectors/file"),
    "backend": ("plugins/columnar", "plugins/light"),
}

#: What pip needs to install a project that can be edited.
_BACKEND = ("hatchling", "editables")


def create(kind: str, name: str, directory: Path | None) -> Path:
    """Make a project and return its directory. The directory must be empty, or must not exist yet.

    Raises JobError if the name is not allowed, if something installed has the name already, if the directory is not
    empty, or if a file cannot be written.
    """
    values = template_values(kind, name)
    _check_unused(kind, values["identifier"])
    place = directory if directory is not None else Path(values["distribution"])
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise JobError(f"{place} exists already and is not empty", hint="give another directory with --directory")
    written = []
    for path, text in rendered(kind, values):
        target = place / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise JobError(f"cannot write {target}: {error.strerror}") from error
        written.append(path)
    say(f"made {place} with {len(written)} files:")
    for path in written:
        say(f"  {path}")
    say("\nnext:\n" + "\n".join(f"  {step}" for step in _next_steps(kind, place)))
    return place


def _next_steps(kind: str, place: Path) -> Iterator[str]:
    """Yield the commands that install the project and run its tests."""
    yield f"cd {shlex.quote(str(place))}"
    wanted = [
        folder for folder in ("plugins/contract", *_NEEDED.get(kind, ())) if find_spec(_module_of(folder)) is None
    ]
    found = [package for package in map(package_beside, wanted) if package is not None]
    # Where the build backend is at hand, as in the environment that `make setup` makes, pip needs no index for it.
    install = "pip install" if any(find_spec(each) is None for each in _BACKEND) else "pip install --no-build-isolation"
    if found:
        yield f"{install} {' '.join(shlex.quote(str(package)) for package in found)}"
    yield f'{install} -e ".[test]"'
    yield "pytest"


def _module_of(folder: str) -> str:
    return f"headrace_{folder.rpartition('/')[2]}"


def package_beside(folder: str) -> Path | None:
    """Return a package of headrace, by its folder in a clone, that lies beside the headrace that is installed here: a folder or a wheel.

    None if headrace came from an index, where the package is too. pip notes where else a package came from (PEP 610).
    """
    noted = distribution("headrace").read_text("direct_url.json")
    parts = urlsplit(json.loads(noted)["url"]) if noted else None
    if parts is None or parts.scheme != "file":
        return None
    origin = Path(url2pathname(parts.path))
    if origin.suffix == ".whl":
        return max(origin.parent.glob(f"{_module_of(folder)}-*.whl"), default=None)
    package = origin.parent / folder
    return package if (package / "pyproject.toml").is_file() else None


def template_values(kind: str, name: str) -> dict[str, str]:
    """Return the values of the placeholders in the templates. Raises JobError if the name is not allowed."""
    identifier = name.replace("-", "_")
    if not _NAME.fullmatch(name) or len(name) > _NAME_LENGTH_MAX:
        raise JobError(
            f"{name!r} cannot be the name of a plug-in",
            hint=f"use a-z, 0-9 and single dashes, begin with a letter, at most {_NAME_LENGTH_MAX} characters",
        )
    if keyword.iskeyword(identifier) or keyword.issoftkeyword(identifier):
        raise JobError(f"{name!r} is a reserved word of Python", hint=_OTHER_NAME)
    suffix = _CLASS_SUFFIX.get(kind, "")
    base = "".join(part.capitalize() for part in name.split("-")).removesuffix(suffix) or suffix
    values = {
        "kind": kind,
        "name": name,
        "identifier": identifier,
        "distribution": f"headrace-{name}",
        "module": f"headrace_{identifier}",
        "base_name": base,
        "class_name": base + suffix,
        "kind_module": _KIND_MODULE[kind],
        "dependencies": _DEPENDENCIES[kind],
    }
    values["description"] = _DESCRIPTION[kind].format_map(values)
    values["usage"] = "    " + _USAGE[kind].format_map(values)
    return values


def rendered(kind: str, values: Mapping[str, str]) -> Iterator[tuple[PurePosixPath, str]]:
    """Yield path and text of every file of a project."""
    templates = files("headrace_console") / "templates"
    found: dict[PurePosixPath, Traversable] = {}
    for part in ("common", *_PARTS.get(kind, (kind,))):
        found.update(sorted(_walk(templates / part, PurePosixPath())))
    for path, file in found.items():
        yield PurePosixPath(_filled(str(path), values)), _filled(file.read_text(encoding="utf-8"), values)


def _walk(place: Traversable, below: PurePosixPath) -> Iterator[tuple[PurePosixPath, Traversable]]:
    for entry in place.iterdir():
        if entry.is_dir():
            yield from _walk(entry, below / entry.name)
        elif entry.name.endswith(_SUFFIX):
            yield below / entry.name.removesuffix(_SUFFIX), entry


def _filled(text: str, values: Mapping[str, str]) -> str:
    """Replace ``{{name}}``, and ``__module__`` in paths. A KeyError means that the template has an unknown placeholder."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], text).replace("__module__", values["module"])


def _check_unused(kind: str, identifier: str) -> None:
    """Raise JobError for a name that something else has already: users could not reach the new plug-in by it."""
    registry = default_registry()
    taken = {plugin.name: plugin.distribution for plugin in registry.installed()}
    if identifier in taken:
        raise JobError(f"the plug-in {identifier!r} is installed already: {taken[identifier]}", hint=_OTHER_NAME)
    for offered_as in _OFFERED_AS.get(kind, (kind,)):
        if registry.has(offered_as, identifier):
            owner = registry.owner(offered_as, identifier)
            raise JobError(
                f"the {offered_as} {identifier!r} exists already: plug-in {owner!r} offers it", hint=_OTHER_NAME
            )
    if kind in ("operator", "stateful-operator") and (
        hasattr(Stream, identifier) or identifier.startswith(("to_", "from_"))
    ):
        raise JobError(
            f"a verb cannot be called {identifier!r}: a stream has a method with that name", hint=_OTHER_NAME
        )
