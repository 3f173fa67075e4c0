"""The unit of systemd."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.foundation.errors import OptionError

from headrace_server.service.description import RESTART_SECONDS, STOP_TIMEOUT_SECONDS, ServiceDescription
from headrace_server.supervision.cgroups import SERVER

#: What the server and its jobs never need. Each holds for user units too, where systemd needs a user namespace for the first ones.
_SANDBOX = (
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "ProtectKernelTunables=yes",
    "RestrictSUIDSGID=yes",
    "RestrictRealtime=yes",
    "LockPersonality=yes",
)
_TEMPORARY = ("/tmp", "/var/tmp")
#: What only the system's manager can take away.
_SANDBOX_OF_SYSTEM = (
    "CapabilityBoundingSet=",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectClock=yes",
    "ProtectHostname=yes",
    "PrivateDevices=yes",
)


def unit_text(description: ServiceDescription, head: str) -> str:
    """Return the text of the unit. ``head`` is its first line. Raises OptionError for directories that the service would not see."""
    if any(each in description.python for each in "\"'\\"):
        raise OptionError(
            f"systemd cannot start a program whose path has quotes or backslashes: {description.python}",
            option="service",
            hint="install headrace into another directory",
        )
    if description.sandbox:
        _check_places(description)
    sections = {
        "Unit": _unit(description),
        "Service": [*_process(description), *_ending(description), *(_sandbox(description) if description.sandbox else [])],
        "Install": [f"WantedBy={'default' if description.run_as is None else 'multi-user'}.target"],
    }  # fmt: skip
    return head + "\n" + "\n".join("\n".join([f"[{name}]", *lines, ""]) for name, lines in sections.items())


def word(text: str) -> str:
    """Return a text as one word of a setting that has several, such as ReadWritePaths."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{whole(escaped)}"'


def whole(text: str) -> str:
    """Return a text as the whole value of a setting that takes no quotes, such as EnvironmentFile."""
    return text.replace("%", "%%")


def command_line(command: Iterable[str]) -> str:
    """Return a command for ExecStart.

    With a colon before the program systemd replaces no ``$NAME``. Doubled dollars would do so for arguments, but not for the program.
    """
    program, *arguments = command
    return " ".join([word(f":{program}"), *map(word, arguments)])


def _check_places(description: ServiceDescription) -> None:
    for path in (description.jobs, description.data, *description.writable):
        if any(path.is_relative_to(each) for each in _TEMPORARY):
            raise OptionError(
                f"{path} is below a directory for temporary files, and the service has a private one",
                option="service",
                hint="choose another directory, or give --no-sandbox",
            )


def _unit(description: ServiceDescription) -> list[str]:
    lines = [f"Description=headrace serve ({description.name})", "StartLimitIntervalSec=0"]
    if description.run_as is not None:
        lines += ["Wants=network-online.target", "After=network-online.target"]
    return lines


def _process(description: ServiceDescription) -> list[str]:
    lines = [
        "Type=exec",
        f"ExecStart={command_line(description.command())}",
        f"WorkingDirectory={whole(str(description.data))}",
        f"EnvironmentFile=-{whole(str(description.environment_file))}",
        "UMask=0077",
        "LimitNOFILE=65536",
        "# A control group for each job with limits; the subgroup is known to systemd 254 and newer.",
        "Delegate=yes",
        f"DelegateSubgroup={SERVER}",
    ]
    return lines if description.run_as is None else [*lines, f"User={description.run_as}"]


def _ending(description: ServiceDescription) -> list[str]:
    leaves = description.on_stop == "leave"
    return [
        "Restart=on-failure",
        f"RestartSec={RESTART_SECONDS}",
        f"TimeoutStopSec={STOP_TIMEOUT_SECONDS}",
        *(["# Only the server gets the signal: the processes of jobs go on, and the next server finds them."] if leaves else []),
        f"KillMode={'process' if leaves else 'mixed'}",
        "# A job that the kernel kills for its memory does not end the others.",
        "OOMPolicy=continue",
    ]  # fmt: skip


def _sandbox(description: ServiceDescription) -> list[str]:
    lines = [*_SANDBOX]
    if description.run_as is None:
        lines.insert(0, "PrivateUsers=yes")
    else:
        lines += _SANDBOX_OF_SYSTEM
    # What was named twice stands once.
    paths = dict.fromkeys([str(description.data), str(description.jobs), *map(str, description.writable)])
    lines.append("ReadWritePaths=" + " ".join(map(word, paths)))
    if description.on_stop == "stop":
        return [*lines, "PrivateTmp=yes"]
    # When the server ends, systemd removes the directories of PrivateTmp while job processes use them; and the next server would have
    # another one, without their sockets.
    source = word(str(description.temporary))
    return [*lines, "# As PrivateTmp, but it stays for the processes of jobs when the server ends.",
            "BindPaths=" + " ".join(f"{source}:{place}" for place in _TEMPORARY)]  # fmt: skip
