"""A plan as an SVG picture. Needs no other program; the same plan always gives the same bytes."""

from headrace_console.picture.drawing import EdgeFigures, plan_as_svg

__all__ = ["EdgeFigures", "plan_as_svg"]
