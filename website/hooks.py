"""Hooks of MkDocs. The pages of docs/ are written for GitHub; here they become pages of the site, with the same links.

- Files outside docs/ that a page links to become pages, for a reader of the site has no repository beside it.
- Fences with a file name, pipes in code of tables and Mermaid diagrams are written as MkDocs takes them.
- The pages of the API reference are made; see ``website.reference``.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # MkDocs loads a hook as a file, not as a module of a package

from website import mermaid, reference  # noqa: E402

#: Pages of the repository's root that are in the site's navigation.
ROOT_PAGES = ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
#: Where files outside docs/ stand in the site.
FILES = "files/"
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_NAMED_FENCE = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the decisions in the navigation: each has a number, so their order is that of their names."""
    decisions = sorted(path.name for path in (ROOT / "docs" / "adr").glob("*.md"))
    decisions.insert(0, decisions.pop(decisions.index("README.md")))
    for section in config.nav or ():
        for pages in section.values() if isinstance(section, dict) else ():
            for entry in pages:
                if isinstance(entry, dict) and "Decisions" in entry:
                    entry["Decisions"] = [f"adr/{name}" for name in decisions]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for name in ROOT_PAGES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    for name, text in reference.pages().items():
        files.append(File.generated(config, f"reference/{name}", content=text))
    for path in _linked_files():
        page = File.generated(config, _address(path), content=_shown(path), inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Write a page as MkDocs takes it."""
    place = page.file.src_uri
    if place.startswith(("reference/", "adr/", FILES)) or place in ROOT_PAGES:
        page.meta.setdefault("search", {"boost": 0.3})  # who searches wants the page of a feature first
    if place.startswith("reference/"):
        return markdown
    markdown = _with_links(markdown, place)
    markdown = mermaid.with_pictures(markdown)
    markdown = _NAMED_FENCE.sub(_titled, markdown)
    return "\n".join(_table_row(line) if line.startswith("|") else line for line in markdown.split("\n"))


def _titled(fence: re.Match[str]) -> str:
    language, name = fence.groups()
    language = {"ndjson": "json"}.get(language, language)
    return f'```{language} title="{name}"' if "." in name else f"```{language}"


def _table_row(line: str) -> str:
    """GitHub wants a pipe within code of a table escaped; Python-Markdown shows the backslash."""
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), line)


# -------------------------------------------------------------------------------------- links to files outside docs/


def _source_of(place: str) -> str:
    """Return the path in the repository of a page of the site."""
    if place.startswith(FILES):
        path = place.removeprefix(FILES)
        return path if (ROOT / path).exists() else path.removesuffix(".md")
    return place if place in ROOT_PAGES else f"docs/{place}"


def _address(path: str) -> str:
    """Return the page of the site that shows a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in ROOT_PAGES:
        return path
    if path == "README.md":
        return "five-minutes.md"
    return FILES + (path if path.endswith(".md") else f"{path}.md")


def _targets(text: str, path: str) -> set[str]:
    """Return the files of the repository that a page links to."""
    links = (match[2] for match in _LINK.finditer(_FENCED.sub("", text)))
    folder = posixpath.dirname(path)
    found = (posixpath.normpath(posixpath.join(folder, link)) for link in links if "://" not in link)
    return {target for target in found if (ROOT / target).is_file()}


def _linked_files() -> list[str]:
    """Return the files outside docs/ that can be reached from the pages of the site, by links of pages."""
    waiting = [*(f"docs/{path.relative_to(ROOT / 'docs')}" for path in (ROOT / "docs").rglob("*.md")), *ROOT_PAGES]
    found: set[str] = set()
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        if not path.startswith("docs/") and path not in ROOT_PAGES:
            found.add(path)
        if path.endswith(".md"):
            new = _targets((ROOT / path).read_text(encoding="utf-8"), path) - seen
            new = {target for target in new if not target.startswith("docs/") and target != "README.md"}
            seen |= new
            waiting += sorted(new)
    return sorted(found)


def _shown(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    language = {".py": "python", ".java": "java", ".toml": "toml"}.get(Path(path).suffix, "text")
    return f"# {path}\n\n````{language}\n{text}\n````\n"


def _with_links(markdown: str, place: str) -> str:
    """Write links to files of the repository as links to their pages."""
    path = _source_of(place)
    if place.startswith(FILES) and not path.endswith(".md"):
        return markdown
    folder, here = posixpath.dirname(path), posixpath.dirname(place)

    def moved(link: re.Match[str]) -> str:
        if "://" in link[2]:
            return link[0]
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        if not (ROOT / target).is_file() or (path.startswith("docs/") and target.startswith("docs/")):
            return link[0]  # MkDocs checks links within docs/, and says which lead nowhere
        return f"{link[1]}{posixpath.relpath(_address(target), here or '.')}{link[3] or ''}{link[4]}"

    pieces = _FENCED.split(markdown)
    fences = [*_FENCED.findall(markdown), ""]
    return "".join(_LINK.sub(moved, piece) + fence for piece, fence in zip(pieces, fences, strict=True))
