"""Log sources of Sigma rules: which rules are for which rows.

A rule names a product, a category and a service. What the rows are is said by the option ``logsource``: all of one source, or rows of
several sources, each with the condition by which its rows are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.foundation.errors import ExpressionError, OptionError, did_you_mean

KEYS = ("product", "category", "service")
_SYSMON = "Microsoft-Windows-Sysmon/Operational"
_POWERSHELL = ("Microsoft-Windows-PowerShell/Operational", "PowerShellCore/Operational")
#: The numbers of Sysmon's events, by the category that the taxonomy of Sigma gives them.
_SYSMON_EVENTS = {
    "process_creation": (1,), "file_change": (2,), "network_connection": (3,), "sysmon_status": (4, 16),
    "process_termination": (5,), "driver_load": (6,), "image_load": (7,), "create_remote_thread": (8,),
    "raw_access_thread": (9,), "process_access": (10,), "file_event": (11,), "registry_event": (12, 13, 14),
    "registry_add": (12,), "registry_delete": (12,), "registry_set": (13,), "registry_rename": (14,),
    "create_stream_hash": (15,), "pipe_created": (17, 18), "wmi_event": (19, 20, 21), "dns_query": (22,),
    "file_delete": (23, 26), "clipboard_capture": (24,), "process_tampering": (25,), "file_delete_detected": (26,),
    "file_block_executable": (27,), "file_block_shredding": (28,), "file_executable_detected": (29,),
    "sysmon_error": (255,),
}  # fmt: skip
#: The channels and numbers of PowerShell's events, by category.
_POWERSHELL_EVENTS = {
    "ps_module": (_POWERSHELL, 4103), "ps_script": (_POWERSHELL, 4104), "ps_classic_start": (("Windows PowerShell",), 400),
    "ps_classic_provider_start": (("Windows PowerShell",), 600), "ps_classic_script": (("Windows PowerShell",), 800),
}  # fmt: skip
#: The channels of services. Of a name that is a part of the channel ``Microsoft-Windows-NAME`` only that part is said.
_CHANNELS = {
    "application": "Application", "security": "Security", "system": "System", "sysmon": _SYSMON,
    "application-experience": ("-Application-Experience/Program-Telemetry", "-Application-Experience/Program-Compatibility-Assistant"),
    "applocker": ("-AppLocker/MSI and Script", "-AppLocker/EXE and DLL", "-AppLocker/Packaged app-Deployment",
                  "-AppLocker/Packaged app-Execution"),
    "appmodel-runtime": "-AppModel-Runtime/Admin", "appxdeployment-server": "-AppXDeploymentServer/Operational",
    "appxpackaging-om": "-AppxPackaging/Operational", "bitlocker": "-BitLocker/BitLocker Management",
    "bits-client": "-Bits-Client/Operational", "capi2": "-CAPI2/Operational",
    "certificateservicesclient-lifecycle-system": "-CertificateServicesClient-Lifecycle-System/Operational",
    "codeintegrity-operational": "-CodeIntegrity/Operational", "dhcp": "-DHCP-Server/Operational",
    "diagnosis-scripted": "-Diagnosis-Scripted/Operational",
    "dns-client": ("-DNS Client Events/Operational", "-DNS-Client/Operational"), "dns-server": "DNS Server",
    "dns-server-analytic": "-DNS-Server/Analytical", "dns-server-audit": "-DNS-Server/Audit",
    "driver-framework": "-DriverFrameworks-UserMode/Operational",
    "firewall-as": "-Windows Firewall With Advanced Security/Firewall", "hyper-v-worker": "-Hyper-V-Worker",
    "iis-configuration": "Microsoft-IIS-Configuration/Operational", "kernel-event-tracing": "-Kernel-EventTracing",
    "kernel-shimengine": ("-Kernel-ShimEngine/Operational", "-Kernel-ShimEngine/Diagnostic"), "ldap": "-LDAP-Client/Debug",
    "lsa-server": "-LSA/Operational", "msexchange-management": "MSExchange Management", "ntfs": "-Ntfs/Operational",
    "ntlm": "-NTLM/Operational", "openssh": "OpenSSH/Operational", "powershell": _POWERSHELL,
    "powershell-classic": "Windows PowerShell", "printservice-admin": "-PrintService/Admin",
    "printservice-operational": "-PrintService/Operational",
    "security-mitigations": ("-Security-Mitigations/Kernel Mode", "-Security-Mitigations/User Mode"),
    "sense": "-SENSE/Operational",
    "microsoft-servicebus-client": ("Microsoft-ServiceBus-Client/Operational", "Microsoft-ServiceBus-Client/Admin"),
    "shell-core": "-Shell-Core/Operational", "smbclient-connectivity": "-SmbClient/Connectivity",
    "smbclient-security": "-SmbClient/Security", "smbserver-connectivity": "-SMBServer/Connectivity",
    "taskscheduler": "-TaskScheduler/Operational",
    "terminalservices-localsessionmanager": "-TerminalServices-LocalSessionManager/Operational",
    "vhdmp": "-VHDMP/Operational", "windefend": "-Windows Defender/Operational", "wmi": "-WMI-Activity/Operational",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogSource:
    """A kind of rows: its product, category and service, and the condition by which its rows are known.

    ``where`` is an SQL expression, or fields with values as in a search of Sigma; empty: all rows are of this kind.
    """

    named: Mapping[str, str]
    where: str | Mapping[str, Any] = ""


def _channels(given: str | Sequence[str]) -> list[str]:
    listed = [given] if isinstance(given, str) else given
    return [f"Microsoft-Windows{one}" if one.startswith("-") else one for one in listed]


def _windows() -> tuple[LogSource, ...]:
    made = [
        LogSource({"product": "windows", "category": name, "service": "sysmon"}, {"Channel": _SYSMON, "EventID": list(numbers)})
        for name, numbers in _SYSMON_EVENTS.items()
    ]  # fmt: skip
    made += [
        LogSource({"product": "windows", "category": name}, {"Channel": list(channels), "EventID": number})
        for name, (channels, number) in _POWERSHELL_EVENTS.items()
    ]
    made += [
        LogSource({"product": "windows", "service": name}, {"Channel": _channels(channels)})
        for name, channels in _CHANNELS.items()
    ]
    return (*made, LogSource({"product": "windows"}, {"Channel|exists": True}))


#: Sources that are known by a name. ``windows``: events of Windows with their ``Channel`` and ``EventID``.
KNOWN = {"windows": _windows()}


def sources_of(given: Any) -> tuple[LogSource, ...]:
    """Return the sources that the option ``logsource`` names. Raises OptionError for anything wrong in it."""
    listed = [given] if isinstance(given, str | Mapping) else given
    if not isinstance(listed, Sequence):
        raise _wrong(f"logsource of sigma is a mapping or a list of them, not {given!r:.80}")
    made: list[LogSource] = []
    for one in listed:
        if isinstance(one, LogSource):
            made.append(one)
        elif isinstance(one, str):
            if one not in KNOWN:
                raise OptionError(f"no log source is called {one!r}", plugin="rules", option="sigma",
                                  hint=did_you_mean(one, KNOWN, known="log sources"))  # fmt: skip
            made += KNOWN[one]
        elif isinstance(one, Mapping):
            made.append(_source_of(one, alone=isinstance(given, Mapping)))
        else:
            raise _wrong(f"logsource of sigma is a mapping or a list of them, not {given!r:.80}")
    return tuple(made)


def _source_of(given: Mapping[str, Any], *, alone: bool) -> LogSource:
    for name in given:
        if name not in (*KEYS, "where"):
            raise _wrong(f"logsource of sigma has {', '.join(KEYS)} and where, not {name!r}")
    named = {name: str(given[name]).lower() for name in KEYS if given.get(name) is not None}
    where = given.get("where", "")
    if not named and (given or not alone):
        raise _wrong(
            f"each logsource of sigma names {', '.join(KEYS[:-1])} or {KEYS[-1]}: {dict(given)!r:.80} does not"
        )
    if not isinstance(where, str | Mapping) or (isinstance(where, Mapping) and not where):
        raise _wrong(f"where of a logsource is an SQL expression, or fields with values, not {where!r:.80}")
    if isinstance(where, str) and where.strip():
        from headrace_columnar import dialect  # imports sqlglot, which takes a while

        try:
            dialect.parse(where)
        except ExpressionError as error:
            raise _wrong(f"where of the logsource {named}: {error}") from error
    return LogSource(named, where if isinstance(where, Mapping) else where.strip())


def sources_for(sources: Sequence[LogSource], rule_source: Any) -> Sequence[LogSource] | None:
    """Return which of some sources a rule with this ``logsource`` is for; None: all rows; an empty list: none of them.

    A source that is exactly the rule's is preferred to sources that are more specific.
    """
    if not sources or not isinstance(rule_source, Mapping):
        return None
    wanted = {name: str(rule_source[name]).lower() for name in KEYS if rule_source.get(name) is not None}
    if not wanted:
        return None
    found = [one for one in sources if wanted.items() <= one.named.items()]
    exact = [one for one in found if one.named == wanted]
    found = exact or found
    return None if any(not one.where for one in found) else found


def is_left_out(sources: Sequence[LogSource], rule_source: Any) -> bool:
    """Return whether a rule with this ``logsource`` is for none of the sources."""
    found = sources_for(sources, rule_source)
    return found is not None and not found


def _wrong(problem: str) -> OptionError:
    return OptionError(problem, plugin="rules", option="sigma")
