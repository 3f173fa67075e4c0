"""The contents of the box of a node, and the size of the box."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.plan.explain import NodeDescription

from headrace_console.picture.layout import Size
from headrace_console.picture.text_width import fitted, monospace_width, text_width

PADDING = 14.0
ICON = 30.0
#: The x coordinate of the title, to the right of the icon.
TITLE_X = PADDING + ICON + 10
TITLE_SIZE, SUBTITLE_SIZE, LINE_SIZE, CHIP_SIZE, BADGE_SIZE = 14.0, 11.5, 12.0, 11.0, 10.5
LINE_HEIGHT, CHIP_HEIGHT, CHIP_GAP = 17.0, 20.0, 5.0
WIDTH_MIN, WIDTH_MAX = 250.0, 400.0
_LINE_ROOM = WIDTH_MAX - 2 * PADDING
#: The largest width of a column's name, in pixels.
_CHIP_ROOM = 200.0
_LINES_MAX, _OPTION_LINES_MAX, _CHIP_ROWS_MAX = 6, 5, 3


@dataclass(frozen=True, slots=True)
class Line:
    """A line in the fixed-width font; ``name`` is the name of an option, drawn in grey before its value."""

    text: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Chip:
    """The label of a column. ``tip`` is shown at the pointer. ``faint``: the source does not decode it, or it is a note."""

    text: str
    tip: str
    faint: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    """The contents of one box, before its width is known."""

    node: NodeDescription
    title: str
    subtitle: str
    badge: str
    lines: tuple[Line, ...]
    chips: tuple[Chip, ...]
    #: All texts in full length, shown at the pointer.
    tip: str

    def width(self) -> float:
        """Return the width that the contents need, but at least WIDTH_MIN and at most WIDTH_MAX."""
        badge = text_width(self.badge, BADGE_SIZE) + 26 if self.badge else 0.0
        title = text_width(self.title, TITLE_SIZE, bold=True) + badge
        widest = max(
            [
                TITLE_X + max(title, text_width(self.subtitle, SUBTITLE_SIZE)),
                *(PADDING + _line_width(line.name + line.text) for line in self.lines),
            ]
        )
        return min(WIDTH_MAX, max(WIDTH_MIN, widest + PADDING))

    def size(self, width: float) -> Size:
        """Return the size of the box at a width."""
        height = PADDING + ICON + PADDING
        height += len(self.lines) * LINE_HEIGHT + (3 if self.lines else 0)
        rows = len(self.chip_rows(width))
        height += rows * CHIP_HEIGHT + (rows - 1) * CHIP_GAP + 12 if rows else 0
        return Size(width, height)

    def chip_rows(self, width: float) -> list[list[Chip]]:
        """Return the chips in rows that fit the width; if there are too many, the last chip says how many are left out."""
        rows: list[list[Chip]] = []
        room = 0.0
        for number, chip in enumerate(self.chips):
            left = len(self.chips) - number
            more = Chip(f"+{left}", "", faint=True)
            if room < chip_width(chip) + (
                chip_width(more) + CHIP_GAP if len(rows) == _CHIP_ROWS_MAX and left > 1 else 0
            ):
                if len(rows) == _CHIP_ROWS_MAX:
                    rest = ", ".join(chip.tip for chip in self.chips[number:])
                    rows[-1].append(Chip(more.text, rest, faint=True))
                    break
                rows.append([])
                room = width - 2 * PADDING
            rows[-1].append(chip)
            room -= chip_width(chip) + CHIP_GAP
        return rows


def chip_width(chip: Chip) -> float:
    """Return the width of a chip in pixels."""
    return text_width(chip.text, CHIP_SIZE) + 14


def box_of(node: NodeDescription) -> Box:
    """Return the contents of the box of a node."""
    base = re.sub(r"-\d+$", "", node.id)
    subtitle = "" if node.what == base else node.what
    arguments = node.arguments
    if node.kind in ("source", "sink"):
        subtitle = f"{node.kind} · {node.what}"
    elif node.kind in ("union", "shuffle", "dead letters"):
        subtitle, arguments = node.arguments, ""
    lines = [Line(text) for text in _limited(_wrapped(arguments), _LINES_MAX)]
    lines += _option_lines(node.options)
    badge = node.guarantee or ("state" if node.stateful else "")
    room = WIDTH_MAX - TITLE_X - PADDING
    title_room = room - (text_width(badge, BADGE_SIZE) + 26 if badge else 0)
    return Box(
        node=node,
        title=fitted(node.id, title_room, lambda text: text_width(text, TITLE_SIZE, bold=True)),
        subtitle=fitted(subtitle, room, lambda text: text_width(text, SUBTITLE_SIZE)),
        badge=badge,
        lines=tuple(lines),
        chips=tuple(_chips(node)),
        tip=_tip(node),
    )


def _option_lines(options: Mapping[str, str]) -> list[Line]:
    name_width = max(map(len, options), default=0) + 2
    room = _LINE_ROOM - monospace_width(" " * name_width, LINE_SIZE)
    shown = [
        Line(fitted(" ".join(value.split()), room, _line_width), name.ljust(name_width))
        for name, value in options.items()
    ]
    if len(shown) > _OPTION_LINES_MAX:
        shown[_OPTION_LINES_MAX - 1 :] = [Line("", f"… and {len(shown) - _OPTION_LINES_MAX + 1} more options")]
    return shown


def _chips(node: NodeDescription) -> list[Chip]:
    if not node.changes_columns or node.kind == "dead letters":  # the columns of dead letters are always the same
        return []
    if node.columns is None:
        return [Chip("columns known row by row", "the columns are known only from the rows themselves", faint=True)]
    decoded = node.columns if node.decoded is None else node.decoded
    return [
        Chip(
            fitted(name, _CHIP_ROOM, lambda text: text_width(text, CHIP_SIZE)),
            f"{name}: {kind}" + ("" if name in decoded else " (not needed: not decoded)"),
            name not in decoded,
        )
        for name, kind in node.columns.items()
    ]


def _tip(node: NodeDescription) -> str:
    parts = [node.id, node.arguments, *(f"{name} = {value}" for name, value in node.options.items())]
    return "\n".join(part for part in parts if part)


def _wrapped(text: str) -> list[str]:
    most = int(_LINE_ROOM / _line_width("x"))
    lines: list[str] = []
    for line in textwrap.dedent(text).splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        # textwrap counts characters, of which some are twice as wide.
        width = most if monospace_width(line, 1) < monospace_width("x", 1) * (len(line) + 0.5) else most // 2
        lines += textwrap.wrap(line, width, subsequent_indent=indent[: width // 2], break_on_hyphens=False)
    return lines


def _line_width(text: str) -> float:
    return monospace_width(text, LINE_SIZE)


def _limited(lines: Sequence[str], most: int) -> list[str]:
    return (
        list(lines)
        if len(lines) <= most
        else [*lines[: most - 1], fitted(f"{lines[most - 1]} …", _LINE_ROOM, _line_width)]
    )
