"""``headrace sql``: a shell for SQL texts, with completion, changing views and files of results.

``splitting`` finds the statements of what is typed; ``execution`` runs a text and gives its results; ``views`` keeps the rows of a
running SELECT; ``showing`` prints results or writes them to files; ``completion`` offers names; ``shell`` takes lines and the
commands that begin with a backslash; ``terminal`` is the loop on a terminal; ``notebook`` is the magic ``%%headrace`` of Jupyter.
"""

from __future__ import annotations

from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """Offer ``%%headrace``: called by IPython for ``%load_ext headrace_shell``."""
    from headrace_shell.notebook import load

    load(shell)
