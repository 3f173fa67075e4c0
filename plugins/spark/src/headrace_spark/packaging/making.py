"""What ``headrace package`` does: finds what a job needs, writes it into one archive, and says how to use it."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from headrace.foundation.errors import JobError
from headrace.interfaces.registry import GROUP, default_registry
from headrace_console.job_files import load_job, parse_assignments
from headrace_console.reporting import say
from packaging.utils import canonicalize_name
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from headrace_spark.packaging.archive import placed, write_archive
from headrace_spark.packaging.distributions import PackedFile, built, choose, everything, files_of, project_of
from headrace_spark.packaging.interpreter import interpreter_files
from headrace_spark.packaging.modules import FoundModule, in_site_packages, needed_modules
from headrace_spark.packaging.own_files import check_for_secrets, own_files
from headrace_spark.processes.archives import DIRECTORY, PackageManifest

#: What every job needs on Spark's workers.
_ALWAYS = ("headrace-spark", "headrace-columnar")


@dataclass(frozen=True, kw_only=True)
class PackageRequest:
    """What the user asks for."""

    target: str
    output: Path
    parameters: Sequence[str] = ()
    #: Distributions to take beside those that are found.
    include: Sequence[str] = ()
    whole_environment: bool = False
    with_python: bool = False
    allow_literals: bool = False


@dataclass(frozen=True)
class _Found:
    """What was found of a job."""

    name: str
    distributions: frozenset[str]
    #: Modules that are of no installed distribution, or of an editable one that may not contain them.
    own: tuple[FoundModule, ...]


def make_package(request: PackageRequest) -> None:
    """Make the package of a job, and print its size and how to use it. Raises JobError."""
    if not request.output.name.endswith((".tar.gz", ".tgz")):
        raise JobError(
            f"{request.output} cannot be the package: Spark unpacks only archives whose names end in .tar.gz or .tgz"
        )
    job_file = _file_of(request.target)
    with _steps() as step:
        step("building the job")
        found = _find(request, job_file)
        chosen = everything() if request.whole_environment else choose([*found.distributions, *request.include])
        step(f"collecting {len(chosen.installed)} distributions")
        with built(chosen.editable) as editable:
            own, left_out = own_files(job_file, _not_in(editable, found.own))
            if not request.allow_literals:
                check_for_secrets(own)
            files = placed(own, "job")
            for name, distribution in chosen.installed.items():
                files += placed(list(editable[name]) if name in editable else list(files_of(distribution)), "lib")
            if request.with_python:
                files += placed(list(interpreter_files()), "python")
            manifest = PackageManifest.of_this_environment(found.name, chosen.versions, has_python=request.with_python)
            _write(request.output, manifest, _distinct(files))
    for file in left_out:
        say(f"not packed, it may hold a secret: {file}", style="yellow")
    _tell(request.output, manifest, own, job_file.name)


def _file_of(target: str) -> Path:
    whole = Path(target)
    return (whole if whole.is_file() else Path(target.rpartition(":")[0] or target)).resolve()


def _find(request: PackageRequest, job_file: Path) -> _Found:
    before = set(sys.modules)
    job = load_job(request.target, parse_assignments(request.parameters, flag="--set"))
    job.plan()  # adds the sink of dead letters
    plugins = {entry.value.partition(":")[0] for entry in metadata.entry_points(group=GROUP)}
    loaded = [
        module
        for name, module in list(sys.modules.items())
        # Each installed plug-in is loaded to read what it offers. The job uses a plug-in if more of its modules are loaded.
        if name not in before and name not in plugins and isinstance(module, types.ModuleType)
    ]
    modules = needed_modules(job_file, _without_bare_plugins(loaded, plugins))
    by_module = metadata.packages_distributions()
    names, own = {*_ALWAYS, *_secret_stores()}, []
    for module in modules:
        owners = by_module.get(module.name, []) if in_site_packages(module.path) else _editable_owners(module)
        names |= set(owners)
        if not in_site_packages(module.path):
            own.append(module)
    return _Found(job.name, frozenset(names), tuple(own))


def _secret_stores() -> set[str]:
    """Return the distributions that offer secret stores: workers look them up by name."""
    registry = default_registry()
    plugins = {registry.owner("secret store", name) for name in registry.names("secret store")}
    entries = metadata.entry_points(group=GROUP)
    return {entry.dist.metadata["Name"] for entry in entries if entry.name in plugins and entry.dist is not None}


def _without_bare_plugins(loaded: Iterable[types.ModuleType], plugins: set[str]) -> list[types.ModuleType]:
    """Return modules without the packages of plug-ins of which only the package itself and the plug-in module are loaded."""
    packages = {name.partition(".")[0] for name in plugins}
    modules = list(loaded)
    used = {module.__name__.partition(".")[0] for module in modules if "." in module.__name__}
    return [module for module in modules if module.__name__.partition(".")[0] not in packages - used]


def _editable_owners(module: FoundModule) -> list[str]:
    found = []
    for distribution in metadata.distributions():
        project = project_of(distribution)
        if project is not None and module.path.is_relative_to(project):
            found.append((len(project.parts), distribution.metadata["Name"]))
    return [max(found)[1]] if found else []


def _not_in(editable: Mapping[str, Sequence[PackedFile]], modules: Iterable[FoundModule]) -> list[FoundModule]:
    """Return the modules that are in no distribution that was built: the user's own files."""
    inside = {file.place.parts[0].removesuffix(".py") for files in editable.values() for file in files}
    return [module for module in modules if module.name not in inside]


def _distinct(files: Iterable[PackedFile]) -> list[PackedFile]:
    """Return files without those of equal places: distributions may share a file of a namespace."""
    return list({file.place: file for file in files}.values())


@contextmanager
def _steps() -> Iterator[Callable[[str], None]]:
    console = Console(stderr=True)
    with console.status("") as status:
        yield status.update


def _write(output: Path, manifest: PackageManifest, files: Sequence[PackedFile]) -> None:
    total = sum(file.source.stat().st_size for file in files)
    columns = (TextColumn("packing"), BarColumn(), DownloadColumn())
    output.parent.mkdir(parents=True, exist_ok=True)
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("packing", total=total)
        write_archive(output, manifest, files, progress=lambda size: progress.advance(task, size))


def _tell(output: Path, manifest: PackageManifest, own: Sequence[PackedFile], job_file: str) -> None:
    size = output.stat().st_size / 1e6
    python = "with its Python" if manifest.has_python else f"workers need Python {manifest.python}"
    say(f"✓ {output}: {size:,.1f} MB, {len(manifest.distributions)} distributions, {manifest.platform}, {python}")
    say(f"  job           {manifest.job}")
    say(f"  its files     {', '.join(str(file.place) for file in own)}")
    ours = [name for name in manifest.distributions if canonicalize_name(name).startswith("headrace")]
    say(f"  headrace      {', '.join(f'{name} {manifest.distributions[name]}' for name in ours)}")
    say("")
    say("Use it in Python:")
    print(f'job.run(master="spark://HOST:7077", checkpoint="…", archive="{output}")', flush=True)
    say("which is the same as:")
    settings = f'"spark.archives": "{output}#{DIRECTORY}", "spark.pyspark.python": "./{DIRECTORY}/bin/python"'
    print(f'job.run(master="spark://HOST:7077", checkpoint="…", conf={{{settings}}})', flush=True)
    say("or with spark-submit:")
    print(f"PYSPARK_DRIVER_PYTHON=python PYSPARK_PYTHON=./{DIRECTORY}/bin/python \\", flush=True)
    print(f"  spark-submit --master spark://HOST:7077 --archives {output}#{DIRECTORY} {job_file}", flush=True)
