"""Decodes JSON bodies to columns in compiled code, without a Python object per value.

Nothing here is called by users: with this package installed, the format ``json`` decodes so by itself.
"""
