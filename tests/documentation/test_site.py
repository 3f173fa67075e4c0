"""The site of docs/: it is built without a warning, loads nothing from elsewhere, and has every public name."""

from __future__ import annotations

import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import headrace
import headrace_contract
import pytest

from website.build import build_version
from website.mermaid import picture
from website.reference import named_in_pages

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
#: Links of a page's head that a browser does not load.
NOT_LOADED = {"canonical", "next", "prev", "alternate"}


class Loads(HTMLParser):
    """Collects what a browser loads for a page, and the ids and classes of its elements."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: set[str] = set()
        self.classes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids.add(values.get("id", ""))
        self.classes.update(values.get("class", "").split())
        if tag == "link" and not set(values.get("rel", "").split()) <= NOT_LOADED:
            self.addresses.append(values["href"])
        if tag not in ("a", "link"):
            names = ("src", "data", "poster", "href", "xlink:href", "action")
            self.addresses += [values[name] for name in names if name in values]
            self.addresses += [part.split()[0] for part in values.get("srcset", "").split(",") if part.strip()]
        self.addresses += re.findall(r"url\(([^)]*)\)", values.get("style", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_version("1.0", tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Loads]:
    read = {}
    for path in site.rglob("*.html"):
        page = Loads()
        page.feed(path.read_text(encoding="utf-8"))
        read[path.relative_to(site).as_posix()] = page
    return read


def elsewhere(address: str) -> bool:
    return re.match(r"\s*[\"']?(\w+:)?//", address) is not None


def test_pages_load_nothing_from_elsewhere(pages: dict[str, Loads]) -> None:
    assert len(pages) > 50
    loaded = {address for page in pages.values() for address in page.addresses}
    assert len(loaded) > 10
    assert [address for address in loaded if elsewhere(address)] == []
    # For an element of this class the theme loads a script from a server.
    assert [name for name, page in pages.items() if "mermaid" in page.classes] == []
    assert "diagram" in pages["architecture.html"].classes


def test_style_sheets_load_nothing_from_elsewhere(site: Path) -> None:
    sheets = list(site.rglob("*.css"))
    assert len(sheets) >= 3
    for sheet in sheets:
        text = sheet.read_text(encoding="utf-8")
        loaded = re.findall(r"url\(([^)]*)\)", text) + re.findall(r"@import\s+([^;]+)", text)
        assert [address for address in loaded if elsewhere(address)] == [], sheet.name


def test_the_reference_has_every_public_name(pages: dict[str, Loads]) -> None:
    anchors = {anchor for name, page in pages.items() if name.startswith("reference/") for anchor in page.ids}
    assert {f"headrace.{name}" for name in headrace.__all__} - anchors == set()
    assert {f"headrace_contract.{name}" for name in headrace_contract.__all__} - anchors == set()


def test_the_reference_has_what_the_pages_for_authors_name(pages: dict[str, Loads]) -> None:
    anchors = {anchor for name, page in pages.items() if name.startswith("reference/") for anchor in page.ids}
    named = named_in_pages()
    assert {"headrace.testing", "headrace.interfaces.topics.Topics", "headrace.plan.graph.rebuilt"} <= set(named)
    assert set(named) - anchors == set()


def test_versions_are_listed_for_the_menu(site: Path) -> None:
    listed = json.loads((site.parent / "versions.json").read_text())
    assert listed == [{"version": "1.0", "title": "1.0", "aliases": ["latest"]}]
    assert 'url=1.0/index.html"' in (site.parent / "index.html").read_text()


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "README.md"
    config = tmp_path / "mkdocs.yml"
    config.write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: {page.parent}\nhooks: []\nplugins: [search]\n"
                      f"nav: [README.md]\ntheme: {{name: material, custom_dir: {ROOT / 'website' / 'theme'}}}\n")  # fmt: skip
    page.write_text("# Page\n\n[here](#page)\n")
    build_version("good", tmp_path / "site", config=config)
    for wrong in ("gone.md", "#gone"):
        page.write_text(f"# Page\n\n[there]({wrong})\n")
        with pytest.raises(subprocess.CalledProcessError):
            build_version("bad", tmp_path / "site", config=config)


def test_a_diagram_that_cannot_be_drawn_is_an_error() -> None:
    assert "<b>" not in picture('flowchart LR\n a["<b>one</b><br>two"]\n a --> b\n')
    assert picture('flowchart TD\n a["one"] --> b["two"]\n b --> c & d\n').count("<rect") == 4
    for wrong in ("flowchart RL\n a --> b", "flowchart LR\n a -.-> b", "flowchart LR\n a --> b\n b --> a"):
        with pytest.raises(ValueError, match=r"flowchart|read"):
            picture(wrong)


#: Written by a program of headrace-sql.
WITHOUT_OPENING = {"sql-functions.md"}


@pytest.mark.parametrize(
    "page",
    [
        path
        for path in sorted(DOCS.rglob("*.md"))
        if not re.match(r"\d", path.name) and path.name not in WITHOUT_OPENING
    ],
    ids=lambda path: path.relative_to(DOCS).as_posix(),
)
def test_a_page_opens_with_what_its_reader_can_do_after_it(page: Path) -> None:
    text = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    title, opening, *_ = [part for part in text.split("\n\n") if part.strip()]
    assert title.strip().startswith("# ")
    assert re.match(r"After this page you (can|have|know)\b", opening.strip())
