"""The REST API: what a server shows and what can be asked of it, under ``/v1``."""
