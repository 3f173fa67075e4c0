"""A backend of pySigma for headrace: ``HeadraceBackend``."""

from headrace_pysigma.backend import HeadraceBackend as HeadraceBackend
