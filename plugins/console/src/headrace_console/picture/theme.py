"""Colours and fonts of the picture, light and dark."""

from __future__ import annotations

from collections.abc import Mapping

_SANS = "ui-sans-serif, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
_MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

#: The rules that are the same for light and dark.
_SHAPES = f"""
text {{ font-family: {_SANS}; }}
.job {{ font-size: 20px; font-weight: 700; }}
.summary {{ font-size: 12.5px; }}
.panel-title {{ font-size: 12px; font-weight: 600; }}
.title {{ font-size: 14px; font-weight: 700; }}
.subtitle {{ font-size: 11.5px; }}
.line {{ font-family: {_MONO}; font-size: 12px; }}
.chip-text {{ font-size: 11px; text-anchor: middle; }}
.badge-text, .weak-text {{ font-size: 10.5px; font-weight: 600; text-anchor: middle; }}
.edge-label-text, .bad-text {{ font-size: 11px; font-weight: 600; text-anchor: middle; }}
.edge {{ fill: none; stroke-width: 1.6; }}
.bad-edge {{ fill: none; stroke-width: 1.6; stroke-dasharray: 5 4; }}
.icon {{ fill: none; stroke-width: 1.35; stroke-linecap: round; stroke-linejoin: round; }}
.box, .panel, .paper {{ stroke-width: 1; }}
.chip.faint {{ fill: none; stroke-dasharray: 3 2; }}
"""

#: The colour of each role. Tints are ready colours, because not every viewer supports opacity in a style sheet.
_LIGHT: Mapping[str, str] = {
    "paper": "#ffffff", "rim": "#d8dee4", "panel": "#f6f8fa", "box": "#ffffff", "box-rim": "#d0d7de",
    "text": "#1f2328", "muted": "#59636e", "edge": "#8c959f", "chip": "#eef1f4",
    "source": "#0969da", "source-tint": "#ddf0ff", "operator": "#7a3fd1", "operator-tint": "#f1e8ff",
    "sink": "#1a7f37", "sink-tint": "#dcf8e3", "bad": "#cf222e", "bad-tint": "#ffebe9", "bad-panel": "#fff8f7",
    "bad-rim": "#f3cfcb", "weak": "#8a5a00", "weak-tint": "#fff3cf",
}  # fmt: skip
_DARK: Mapping[str, str] = {
    "paper": "#0d1117", "rim": "#30363d", "panel": "#151b23", "box": "#1c232d", "box-rim": "#3a424d",
    "text": "#e9eef5", "muted": "#9aa4b0", "edge": "#768390", "chip": "#2a323d",
    "source": "#6cb2ff", "source-tint": "#16304d", "operator": "#c19bff", "operator-tint": "#2f2450",
    "sink": "#56d06f", "sink-tint": "#15361f", "bad": "#ff7b72", "bad-tint": "#4a1d1e", "bad-panel": "#1c1519",
    "bad-rim": "#55292b", "weak": "#e3b341", "weak-tint": "#3a2d10",
}  # fmt: skip
_KINDS = {
    "source": "source",
    "operator": "operator",
    "union": "operator",
    "shuffle": "operator",
    "sink": "sink",
    "dead-letters": "bad",
}


def style(theme: str, *, live: bool = False) -> str:
    """Return the style sheet for ``light``, ``dark``, or ``auto``: light, but dark if the viewer prefers it.

    ``live``: with the rules for edges that are slow.
    """

    def rules(colours: Mapping[str, str]) -> str:
        return _rules(colours) + (_slow_rules(colours) if live else "")

    if theme == "auto":
        return f"{_SHAPES}{rules(_LIGHT)}@media (prefers-color-scheme: dark) {{\n{rules(_DARK)}}}\n"
    return _SHAPES + rules(_DARK if theme == "dark" else _LIGHT)


def _slow_rules(colours: Mapping[str, str]) -> str:
    bad = colours["bad"]
    return f".edge.slow, .edge-label.slow {{ stroke: {bad}; }}\n.edge-label-text.slow {{ fill: {bad}; }}\n"


def _rules(colours: Mapping[str, str]) -> str:
    c = colours
    lines = [
        f".paper {{ fill: {c['paper']}; stroke: {c['rim']}; }}",
        f".panel {{ fill: {c['panel']}; stroke: {c['rim']}; }}",
        f".bad-panel {{ fill: {c['bad-panel']}; stroke: {c['bad-rim']}; }}",
        f".box {{ fill: {c['box']}; stroke: {c['box-rim']}; }}",
        f".job, .title, .line, .chip-text {{ fill: {c['text']}; }}",
        f".summary, .panel-title, .subtitle, .option, .chip-text.faint, .edge-label-text {{ fill: {c['muted']}; }}",
        f".edge {{ stroke: {c['edge']}; }}",
        f".arrow {{ fill: {c['edge']}; }}",
        f".chip {{ fill: {c['chip']}; stroke: none; }}",
        f".chip.faint {{ fill: none; stroke: {c['edge']}; }}",
        f".edge-label {{ fill: {c['box']}; stroke: {c['box-rim']}; }}",
        f".bad-edge {{ stroke: {c['bad']}; }}",
        f".bad-arrow, .bad-text {{ fill: {c['bad']}; }}",
        f".badge {{ fill: {c['sink-tint']}; }}",
        f".badge-text {{ fill: {c['sink']}; }}",
        f".badge.weak {{ fill: {c['weak-tint']}; }}",
        f".weak-text {{ fill: {c['weak']}; }}",
    ]
    for kind, role in _KINDS.items():
        lines.append(f".{kind} .tile {{ fill: {c[f'{role}-tint']}; }}")
        lines.append(f".{kind} .icon {{ stroke: {c[role]}; }}")
    return "".join(f"{line}\n" for line in lines)
