"""The rules of SigmaHQ, read from a checkout that the environment names: ``make sigma``."""
