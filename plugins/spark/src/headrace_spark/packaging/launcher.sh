#!/bin/sh
# Starts Python {version} with the packages beside this file. Made by `headrace package`.
here=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd -P)
PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$here/job:$here/lib"
PYTHONNOUSERSITE=1
PATH="${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}"
export PYTHONPATH PYTHONNOUSERSITE PATH
if [ -x "$here/python/bin/python{version}" ]; then
  LD_LIBRARY_PATH="$here/python/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  PYTHONHOME="$here/python"
  export LD_LIBRARY_PATH PYTHONHOME
  exec "$here/python/bin/python{version}" "$@"
fi
for python in "$HEADRACE_PYTHON" python{version} /usr/local/bin/python{version} /usr/bin/python{version} /opt/python/bin/python{version} python3 python; do
  [ -n "$python" ] && command -v "$python" >/dev/null 2>&1 || continue
  found=$("$python" -I -S -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
  [ "$found" = "{version}" ] && exec "$python" "$@"
done
echo "headrace: this machine has no Python {version}, which the job's package needs." >&2
echo "headrace: install it, name it in HEADRACE_PYTHON, or make the package with --with-python." >&2
exit 127
