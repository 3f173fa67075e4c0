"""The backend of pySigma in an empty environment, with the sigma-cli of the package index, as a newcomer installs both."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from uv import find_uv_bin

from tests.packaging.wheels import build_wheels_here

pytestmark = pytest.mark.slow
RULE = """
title: Shadow read
id: 929a690e-bef0-4204-a928-ef5e620d6fcc
status: test
level: high
tags: [attack.t1003.008]
logsource: {category: process_creation, product: linux}
detection:
  selection: {Image|endswith: [/cat, /less], CommandLine|windash|contains: ' -c '}
  keywords: [shadow]
  condition: selection and keywords
"""


@pytest.fixture(scope="module")
def sigma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the command; return its path."""
    wheels = build_wheels_here(tmp_path_factory.mktemp("wheels"))
    place = tmp_path_factory.mktemp("empty") / "venv"
    subprocess.run([find_uv_bin(), "venv", "--quiet", "--python", sys.executable, place], check=True)
    command = [find_uv_bin(), "pip", "install", "--quiet", "--python", str(place / "bin" / "python")]
    command += ["--find-links", str(wheels[0].parent), "sigma-cli", "headrace-pysigma"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=place)
    if done.returncode and "Failed to fetch" in done.stderr:
        pytest.skip("the package index cannot be reached")
    assert done.returncode == 0, done.stderr
    return place / "bin" / "sigma"


def run(sigma: Path, *arguments: str | Path) -> str:
    return subprocess.run([sigma, *arguments], capture_output=True, text=True, check=True).stdout


def test_the_backend_is_a_target(sigma: Path) -> None:
    assert "headrace" in run(sigma, "list", "targets")
    assert "rules" in run(sigma, "list", "formats", "headrace")


def test_a_rule_becomes_a_file_for_the_verb_rules(sigma: Path, tmp_path: Path) -> None:
    (tmp_path / "rule.yml").write_text(RULE)
    options = ["-t", "headrace", "--without-pipeline", "-O", "keywords=message"]
    run(sigma, "convert", *options, "-f", "rules", "-o", tmp_path / "rules.yaml", tmp_path / "rule.yml")
    [rule] = yaml.safe_load((tmp_path / "rules.yaml").read_text())
    assert (rule["id"], rule["severity"]) == ("929a690e-bef0-4204-a928-ef5e620d6fcc", "high")
    assert "\"Image\" ILIKE ANY ('%/cat', '%/less')" in rule["expression"]
    assert "\"message\" ILIKE '%shadow%'" in rule["expression"]
    assert rule["expression"] in run(sigma, "convert", *options, tmp_path / "rule.yml")
