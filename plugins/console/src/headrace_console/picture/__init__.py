"""A plan as an SVG picture. Needs no other program; the same plan always gives the same bytes."""

from headrace_console.picture.drawing import plan_as_svg

__all__ = ["plan_as_svg"]
