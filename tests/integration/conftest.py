"""Makes the receivers of contrib's tests importable: jobs here write to several of them."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
for name in ("http", "mail"):
    sys.path.insert(0, str(ROOT / "contrib" / name / "tests"))
