"""docs/sigma-rules.md, followed to the letter: with rules of this file, and with those of SigmaHQ where a checkout is named."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.documentation.test_first_steps import blocks_of, shell
from tests.published.sigma.__main__ import VARIABLE

PAGE = "docs/sigma-rules.md"
#: Stand for rules of SigmaHQ: their ids, and conditions of our own that are true for the same events of the page.
_RULES = {
    "502b42de-4306-40b4-9596-6f590c81f073": ("medium", "{CommandLine|contains: whoami}"),
    "97a80ec7-0e2f-4d05-9ef4-65760e634f6b": ("high", "{CommandLine|endswith: /priv}"),
    "19b08b1c-861d-4e75-a1ef-ea0c1baf202b": ("high", "{CommandLine|contains: -urlcache}"),
    "13e6fe51-d478-4c7e-b0f2-6da9b400a829": ("medium", "{Image|endswith: certutil.exe}"),
    "c947b146-0abc-4c87-9c64-b17e9d7274a2": ("high", "{CommandLine|contains|all: [delete, shadows]}"),
}


def lay_out(place: Path) -> dict[str, str]:
    """Write the files of the page; return its blocks by name."""
    blocks = blocks_of(PAGE)
    for _, name, text in blocks:
        if "." in name:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text, encoding="utf-8")
    return {name: text for _, name, text in blocks}


def follow(place: Path, named: dict[str, str]) -> None:
    place.joinpath("home").mkdir()
    cache = f"export HEADRACE_CACHE={place / 'home'}\n"
    assert shell(cache + named["run"], place).endswith(named["alerts"])
    assert shell(cache + named["correlate"], place).endswith(named["intruders"])
    told = shell(cache + named["profile"], place)
    assert " rules on 4 messages (0 could not be decoded)" in told
    assert len([line for line in told.splitlines() if "  [" in line or line.endswith("]")]) >= 5, told


def test_the_guide_works_as_printed(tmp_path: Path) -> None:
    named = lay_out(tmp_path)
    rules = tmp_path / "sigma" / "rules" / "windows" / "process_creation"
    rules.mkdir(parents=True)
    for number, (rule, (level, selection)) in enumerate(_RULES.items()):
        text = (
            f"title: {rule}\nid: {rule}\nlevel: {level}\nlogsource: {{category: process_creation, product: windows}}\n"
        )
        (rules / f"{number}.yml").write_text(f"{text}detection:\n  a: {selection}\n  condition: a\n")
    follow(tmp_path, named)


@pytest.mark.slow
@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no checkout of SigmaHQ")
def test_the_guide_works_with_the_published_rules(tmp_path: Path) -> None:
    named = lay_out(tmp_path)
    assert "git clone" in named["rules"]
    shutil.copytree(Path(os.environ[VARIABLE]) / "rules", tmp_path / "sigma" / "rules")
    follow(tmp_path, named)
