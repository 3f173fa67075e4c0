"""The REST API of a server, under ``/v1``."""
