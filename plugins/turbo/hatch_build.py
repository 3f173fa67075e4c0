"""Compiles the kernel when the package is built or installed. Without cargo it is left out, and headrace's own decoder does the work."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NAME = f"libheadrace_turbo_kernel.{'dylib' if sys.platform == 'darwin' else 'so'}"


class KernelBuildHook(BuildHookInterface):
    """Called by hatchling before it makes a wheel, also an editable one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile with cargo into the package, and name the platform in the wheel's tag."""
        root = Path(self.root)
        placed = root / "src" / "headrace_turbo" / _NAME
        if not self._compiled(root / "kernel", placed):
            placed.unlink(missing_ok=True)
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"

    def _compiled(self, kernel: Path, placed: Path) -> bool:
        cargo = shutil.which("cargo")
        if cargo is None:
            self.app.display_warning(
                "headrace-turbo: cargo was not found, so JSON is decoded by headrace itself (slower)"
            )
            return False
        command = [cargo, "build", "--release", "--offline", "--quiet", "--manifest-path", str(kernel / "Cargo.toml")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.app.display_warning(
                f"headrace-turbo: cargo failed, so JSON is decoded by headrace itself:\n{done.stderr}"
            )
            return False
        # A running process may have the old library open: it keeps it, and the new one takes its name.
        beside = placed.with_suffix(".new")
        shutil.copyfile(kernel / "target" / "release" / _NAME, beside)
        beside.replace(placed)
        return True
