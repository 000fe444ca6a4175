"""What installs the parts and runs a cluster from them: for developers, demos and tests. Not in the wheel."""

from importlib.util import find_spec

if find_spec("torchx_pulumi") is None:
    raise SystemExit("tools: this Python lacks the package torchx_pulumi; run `make sync`, then use .venv/bin/python")
