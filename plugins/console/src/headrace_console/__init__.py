"""The ``headrace`` command. Its parts are importable: ``headrace_console.picture.plan_as_svg`` draws a plan."""

__version__ = "0.1.0"
