"""Run performance programs: `python -m bench [NAME]...`; without a name all of them."""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path

from bench._installed import compile_as_pip


def main(names: list[str]) -> int:
    """Run the named programs; the worst exit code is ours."""
    known = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"bench: {unknown[0]!r} is unknown, must be {', '.join(known)}", file=sys.stderr)
        return 2
    print(f"bench: {compile_as_pip()}", flush=True)
    # A program that is ended removes what it made, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return max(importlib.import_module(f"bench.{name}").main() for name in names or known)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
