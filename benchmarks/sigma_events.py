"""Seeded events of ordinary hosts, with the fields that Sigma names, for the measurement of Sigma rules.

They are what a fleet writes on an ordinary day: programs of the system and of offices, their windows of command lines, names that
browsers look up, requests of a web shop. Nearly none is what a rule looks for. No text is taken from a rule.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

Event = Mapping[str, str]

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_SYSTEM = "C:\\Windows\\System32\\"
_EXPLORER = "C:\\Windows\\explorer.exe"
_OFFICE = "C:\\Program Files\\Microsoft Office\\root\\Office16\\"
_CODE = "C:\\Program Files\\Microsoft VS Code\\Code.exe"
_SERVICES = _SYSTEM + "services.exe"
_HOST = _SYSTEM + "svchost.exe"
_INDEXER = _SYSTEM + "SearchIndexer.exe"
#: Path, description, company, original name and the program that usually starts it.
_PROGRAMS = tuple(
    (path, description, company, name or path.rpartition("\\")[2], parent)
    for path, description, company, name, parent in (
        ("C:\\Program Files\\Google\\Chrome\\Application\\chrome.exe", "Google Chrome", "Google LLC", "", "self"),
        ("C:\\Program Files (x86)\\Microsoft\\Edge\\Application\\msedge.exe", "Microsoft Edge", "Microsoft Corporation", "", "self"),
        (_OFFICE + "OUTLOOK.EXE", "Microsoft Outlook", "Microsoft Corporation", "Outlook.exe", _EXPLORER),
        (_OFFICE + "EXCEL.EXE", "Microsoft Excel", "Microsoft Corporation", "Excel.exe", _EXPLORER),
        ("C:\\Program Files\\Git\\cmd\\git.exe", "Git for Windows", "The Git Development Community", "", _CODE),
        ("C:\\Program Files\\nodejs\\node.exe", "Node.js JavaScript Runtime", "Node.js", "", _CODE),
        ("C:\\Program Files\\Java\\jdk-17\\bin\\java.exe", "OpenJDK Platform binary", "Eclipse Adoptium", "", _SERVICES),
        (_HOST, "Host Process for Windows Services", "Microsoft Corporation", "", _SERVICES),
        (_SYSTEM + "taskhostw.exe", "Host Process for Windows Tasks", "Microsoft Corporation", "taskhostw.exe", _HOST),
        (_SYSTEM + "RuntimeBroker.exe", "Runtime Broker", "Microsoft Corporation", "", _HOST),
        (_SYSTEM + "SearchProtocolHost.exe", "Microsoft Windows Search Protocol Host", "Microsoft Corporation", "", _INDEXER),
        (_SYSTEM + "dllhost.exe", "COM Surrogate", "Microsoft Corporation", "", _HOST),
        (_SYSTEM + "backgroundTaskHost.exe", "Background Task Host", "Microsoft Corporation", "", _HOST),
        (_SYSTEM + "wbem\\WmiPrvSE.exe", "WMI Provider Host", "Microsoft Corporation", "Wmiprvse.exe", _HOST),
    )
)  # fmt: skip
_DOMAINS = (
    "www.google.com", "outlook.office365.com", "login.microsoftonline.com", "teams.microsoft.com", "clients4.google.com",
    "api.shop.example.com", "cdn.example.net", "db-1.corp.example.com", "time.windows.com", "www.bing.com",
)  # fmt: skip
_BROWSERS = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{0}.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.{0} Safari/605.1.15",
    "Mozilla/5.0 (X11; Linux x86_64; rv:{0}.0) Gecko/20100101 Firefox/{0}.0",
)
_DAEMONS = ("nginx", "postgres", "node", "python3", "sshd", "dockerd", "containerd", "systemd", "java", "redis-server")


class Events:
    """Makes events. The same seed gives the same events."""

    def __init__(self, seed: int = 7) -> None:
        self._chance = random.Random(seed)

    def process_creation(self) -> Event:
        """Return a process that starts on Windows, as Sysmon has it."""
        chance, user = self._chance, self._user()
        image, description, company, original, parent = chance.choice(_PROGRAMS)
        parent = image if parent == "self" else parent
        return {
            "Channel": "Microsoft-Windows-Sysmon/Operational", "EventID": "1", "Provider_Name": "Microsoft-Windows-Sysmon",
            "Computer": self._host(), "ProcessId": str(chance.randrange(400, 30_000)), "Image": image,
            "FileVersion": f"10.0.{chance.randrange(19041, 26100)}.{chance.randrange(1, 5000)}", "Description": description,
            "Product": description, "Company": company, "OriginalFileName": original, "CommandLine": self._command(image),
            "CurrentDirectory": _SYSTEM if chance.random() < 0.6 else f"C:\\Users\\{user}\\", "User": f"CORP\\{user}",
            "LogonId": hex(chance.getrandbits(24)), "IntegrityLevel": chance.choice(("Medium", "Medium", "Low", "System")),
            "Hashes": f"SHA256={chance.getrandbits(256):064X},IMPHASH={chance.getrandbits(128):032X}",
            "ParentImage": parent, "ParentCommandLine": self._command(parent), "ParentUser": f"CORP\\{user}",
            "ParentProcessId": str(chance.randrange(400, 30_000)),
        }  # fmt: skip

    def network(self) -> Event:
        """Return a connection on Windows, as Sysmon has it."""
        chance = self._chance
        image = chance.choice(_PROGRAMS)[0]
        port = "443" if "Office" in image else chance.choice(("443", "443", "80", "5432", "993"))
        # Offices speak with the servers of their maker.
        to = (
            f"52.{chance.randrange(160, 191)}.{chance.randrange(256)}.{chance.randrange(256)}"
            if "Office" in image
            else self._address()
        )
        return {
            "Channel": "Microsoft-Windows-Sysmon/Operational", "EventID": "3", "Provider_Name": "Microsoft-Windows-Sysmon",
            "Computer": self._host(), "Image": image, "User": f"CORP\\{self._user()}", "Protocol": "tcp",
            "Initiated": "true", "SourceIp": f"10.20.{chance.randrange(256)}.{chance.randrange(1, 255)}",
            "SourcePort": str(chance.randrange(49_152, 65_536)), "DestinationIp": to,
            "DestinationHostname": self._domain(), "DestinationPort": port,
        }  # fmt: skip

    def dns(self) -> Event:
        """Return a name that is looked up, as Sysmon has it."""
        name = self._domain()
        return {
            "Channel": "Microsoft-Windows-Sysmon/Operational", "EventID": "22", "Provider_Name": "Microsoft-Windows-Sysmon",
            "Computer": self._host(), "Image": self._chance.choice(_PROGRAMS)[0], "User": f"CORP\\{self._user()}",
            "QueryName": name, "query": name, "QueryStatus": "0", "QueryResults": f"::ffff:{self._address()};",
            "record_type": "A", "answer": self._address(),
        }  # fmt: skip

    def web(self) -> Event:
        """Return a request, with the field names of web servers and of proxies."""
        chance = self._chance
        path = f"/shop/{chance.choice(('items', 'cart', 'orders', 'search'))}/{chance.randrange(10**6)}"
        query = f"page={chance.randrange(40)}&sort={chance.choice(('price', 'name'))}&session={self._word(24)}"
        host = self._domain()
        return {
            "cs-method": chance.choice(("GET", "GET", "GET", "POST")), "cs-uri-stem": path, "cs-uri-query": query,
            "c-uri": f"https://{host}{path}?{query}", "cs-host": host, "sc-status": chance.choice(("200", "200", "200", "304", "404")),
            "c-useragent": chance.choice(_BROWSERS).format(chance.randrange(90, 130)), "c-ip": self._address(),
            "cs-referer": f"https://{host}/shop/", "cs-version": "HTTP/1.1", "sc-bytes": str(chance.randrange(200, 90_000)),
        }  # fmt: skip

    def linux(self) -> Event:
        """Return a process that starts on Linux, a record of auditd or a line of syslog."""
        chance, daemon = self._chance, self._chance.choice(_DAEMONS)
        kind = chance.random()
        if kind < 0.4:
            return {
                "Image": f"/usr/bin/{daemon}", "CommandLine": f"/usr/bin/{daemon} --config /etc/{daemon}/main.conf --id {self._word(12)}",
                "ParentImage": "/usr/lib/systemd/systemd", "ParentCommandLine": "/sbin/init", "User": daemon, "LogonId": "1000",
                "CurrentDirectory": "/", "Computer": self._host(),
            }  # fmt: skip
        if kind < 0.7:
            return {"type": "SYSCALL", "syscall": "openat", "exe": f"/usr/bin/{daemon}", "comm": daemon, "success": "yes", "key": "files",
                    "name": f"/var/lib/{daemon}/{self._word(10)}", "a0": "ffffff9c", "a1": hex(chance.getrandbits(40)), "a2": "0",
                    "uid": "1000", "auid": "4294967295"}  # fmt: skip
        message = f"{daemon}[{chance.randrange(1, 40_000)}]: session {self._word(8)} opened for service {daemon} from {self._address()}"
        return {"message": message, "Computer": self._host()}

    def _command(self, image: str) -> str:
        chance = self._chance
        if image.endswith("svchost.exe"):
            return f"{image} -k netsvcs -p -s {self._word(8)}"
        if image.startswith(_SYSTEM):
            return f"{image} {{{self._word(8)}-{self._word(4)}-{self._word(12)}}}"
        return (
            f'"{image}" --type={chance.choice(("renderer", "utility"))} --field-trial-handle={chance.randrange(9999)},i,{self._word(19)}'
            f" --lang=en-US --mojo-platform-channel-handle={chance.randrange(9999)} /prefetch:{chance.randrange(1, 9)}"
        )

    def _word(self, length: int) -> str:
        return "".join(self._chance.choices(_LETTERS, k=length))

    def _user(self) -> str:
        return f"user{self._chance.randrange(400)}"

    def _host(self) -> str:
        return f"WS-{self._chance.randrange(2000):04}.corp.example.com"

    def _domain(self) -> str:
        if self._chance.random() < 0.7:
            return self._chance.choice(_DOMAINS)
        return f"{self._word(10)}.{self._chance.choice(('example.com', 'example.net', 'example.org'))}"

    def _address(self) -> str:
        return f"198.51.{self._chance.randrange(256)}.{self._chance.randrange(1, 255)}"

    def kinds(self) -> Mapping[str, Callable[[], Event]]:
        """Return what makes the events of each group of rules."""
        return {
            "windows process creation": self.process_creation, "network": self.network, "dns": self.dns, "web": self.web,
            "linux": self.linux,
        }  # fmt: skip
