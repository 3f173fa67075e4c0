"""The server as a service of the operating system: a unit of systemd, or a property list of launchd on macOS.

``ServiceDescription`` describes it, ``systemd`` and ``launchd`` write it as a file, and ``installation`` puts that where the service
manager reads it. No module here talks to the service manager: ``installation`` returns commands, and
``headrace service install --start`` runs them.
"""
