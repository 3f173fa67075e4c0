"""Starts a virtual machine with this machine's files and systemd as process 1, and runs a script in it."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from tests.eventually import eventually
from tests.servers.directories import cache_directory, locked
from tests.servers.errors import MissingDownloadError, MissingProgramError, TestServerError
from tests.servers.programs import require_program

#: In the order in which they are loaded: each needs only those before it.
_MODULES = (
    "virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "netfs", "fscache", "9pnet",
    "9pnet_virtio", "9p", "overlay", "virtio_blk", "crc32c_generic", "crc16", "mbcache", "jbd2", "ext4",
)  # fmt: skip
#: Units of systemd that look at every file of the disk, or write what is gone anyway.
_MASKED = ("systemd-tmpfiles-setup", "systemd-journal-flush", "systemd-update-utmp", "systemd-sysusers")
_LINUX = "linux-image-amd64"
_9P = "trans=virtio,version=9p2000.L,msize=524288"
_INIT = f"""#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
for m in {" ".join(_MODULES)}; do $b insmod /lib/$m.ko; done
$b mount -t 9p -o {_9P},ro,cache=loose host /lower && $b mount -t tmpfs -o size=80% tmpfs /upper && $b mkdir /upper/u /upper/w &&
$b mount -t overlay -o lowerdir=/lower,upperdir=/upper/u,workdir=/upper/w overlay /root || $b reboot -f
$b mount -t tmpfs tmpfs /root/tmp
$b mkdir -p /root/share && $b mount -t 9p -o {_9P},rw share /root/share || $b reboot -f
$b cp /root/share/machine.* /root/etc/systemd/system/
for u in {" ".join(_MASKED)}; do $b ln -sf /dev/null /root/etc/systemd/system/$u.service; done
$b ln -sf /dev/null /root/etc/systemd/system/timers.target; $b ln -sf /dev/null /root/etc/systemd/system/sockets.target
$b umount /proc /sys; $b mount --move /dev /root/dev
exec $b switch_root /root /lib/systemd/systemd --unit=machine.target
"""
_TARGET = "[Unit]\nRequires=basic.target machine.service\nAfter=basic.target\nAllowIsolate=yes\n"
_SERVICE = """[Unit]
After=basic.target
[Service]
Type=oneshot
Environment=HOME=/root
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/bin/bash -c '/bin/bash -eux /share/script > /share/output 2> /share/errors; echo $? > /share/code'
ExecStopPost=/bin/systemctl --no-block poweroff -f
TimeoutStartSec=infinity
"""


class Machine:
    """A virtual machine that is started for each script. ``share`` is its directory ``/share``; what is in it stays.

    ``disk`` is a file that it has as the disk ``/dev/vda``.
    """

    def __init__(self, share: Path, disk: Path | None = None) -> None:
        self.share = share
        self.disk = disk
        self._image = _image()

    def run(self, script: str, *, timeout_seconds: float = 1700.0) -> str:
        """Start the machine, run a script of bash as root, switch it off. Returns what the script printed. Raises TestServerError."""
        self._prepare(script)
        try:
            done = subprocess.run(self._command(), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                                  timeout=timeout_seconds, check=False)  # fmt: skip
            console = done.stdout + done.stderr
        except subprocess.TimeoutExpired as error:
            console = f"{(error.stdout or b'').decode(errors='replace')}\nnot ended within {timeout_seconds:g} s"
        said = {name: self._read(name) for name in ("output", "errors", "code")}
        if said["code"].strip() != "0":
            seen = "\n".join(
                line for line in console.splitlines() if "machine.service/start" not in line and line.strip()
            )
            raise TestServerError(
                f"the script failed with {said['code'].strip() or 'no code'}:\n{said['output'][-6000:]}\n{said['errors'][-6000:]}\n"
                f"console:\n{seen[-2000:]}"
            )
        return said["output"]

    def cut_power(self, script: str, moment: Callable[[], bool]) -> None:
        """Start the machine with a script, and end it when ``moment`` is true: what its kernel has not written is lost."""
        self._prepare(script)
        with (self.share / "console").open("wb") as console:
            process = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=console, stderr=console)
        try:
            eventually(
                lambda: moment() or self._ended(process), "the moment of the cut", seconds=1700.0, pause_seconds=0.02
            )
        finally:
            process.kill()
            process.wait()

    def _ended(self, process: subprocess.Popen[bytes]) -> bool:
        if process.poll() is not None:
            raise TestServerError(
                "\n".join(self._read(name)[-4000:] for name in ("output", "errors", "code", "console"))
            )
        return False

    def _prepare(self, script: str) -> None:
        (self.share / "machine.target").write_text(_TARGET)
        (self.share / "machine.service").write_text(_SERVICE)
        (self.share / "script").write_text(script)
        for name in ("output", "errors", "code"):
            (self.share / name).unlink(missing_ok=True)

    def _read(self, name: str) -> str:
        try:
            return (self.share / name).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def _command(self) -> Sequence[str]:
        return [
            str(require_program("qemu-system-x86_64", "qemu-system-x86")),
            "-M", "pc", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "3G", "-nodefaults", "-no-reboot",
            "-display", "none", "-serial", "stdio", "-kernel", str(self._image / "vmlinuz"), "-initrd", str(self._image / "initrd"),
            "-append", "console=ttyS0 panic=-1 quiet systemd.show_status=no",
            "-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
            "-fsdev", f"local,id=share,path={self.share},security_model=none,multidevs=remap",
            "-device", "virtio-9p-pci,fsdev=share,mount_tag=share",
            *(() if self.disk is None else ("-drive", f"file={self.disk},format=raw,if=virtio,cache=writeback")),
        ]  # fmt: skip


def _image() -> Path:
    """Return the directory with the kernel and the first file system, made once. Raises MissingProgramError, MissingDownloadError."""
    if platform.machine() != "x86_64" or shutil.which("apt-get") is None:
        raise MissingProgramError("the virtual machine has Debian's kernel for x86_64, which apt-get fetches")
    busybox = require_program("busybox", "busybox-static")
    cpio = require_program("cpio", "cpio")
    kind = sha256(f"{_MODULES}{_INIT}".encode()).hexdigest()[:10]
    place = cache_directory() / f"machine-{kind}"
    with locked(cache_directory() / "machine.lock"):
        if not (place / "initrd").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            _make(place, busybox, cpio)
    return place


def _make(place: Path, busybox: Path, cpio: Path) -> None:
    tree = place / "kernel"
    try:
        depends = _said("apt-cache", "depends", _LINUX)
        package = next(line.split()[-1] for line in depends.splitlines() if "Depends:" in line)
        _said("apt-get", "download", package, cwd=place)
        [archive] = place.glob("*.deb")
        _said("dpkg-deb", "--extract", str(archive), str(tree))
    except (subprocess.CalledProcessError, StopIteration) as error:
        raise MissingDownloadError(f"{_LINUX} cannot be fetched: {getattr(error, 'stderr', error)}") from error
    archive.unlink()
    root = place / "root"
    for folder in ("bin", "lib", "proc", "sys", "dev", "root", "lower", "upper"):
        (root / folder).mkdir(parents=True)
    shutil.copy(busybox, root / "bin" / "busybox")
    for module in _MODULES:
        [file] = tree.glob(f"lib/modules/*/kernel/**/{module}.ko")
        shutil.copy(file, root / "lib")
    (root / "init").write_text(_INIT)
    (root / "init").chmod(0o755)
    [kernel] = tree.glob("boot/vmlinuz-*")
    shutil.copy(kernel, place / "vmlinuz")
    _said("sh", "-c", f"find . | {cpio} --quiet -o -H newc > ../initrd", cwd=root)
    shutil.rmtree(tree)


def _said(*command: str, cwd: Path | None = None) -> str:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout
