"""Where pySigma looks for backends: its name is that of this package."""

from headrace_pysigma.backend import HeadraceBackend

__all__ = ["HeadraceBackend"]
