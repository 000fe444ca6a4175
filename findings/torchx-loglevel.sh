#!/usr/bin/env bash
# TorchX's `dist.ddp` takes LOGLEVEL of the launching shell into the job, so that one command describes two jobs.
#
# Version: torchx 0.7.0.
# Guess: an AppDef follows from the component and its arguments; two shells give the same one.
# Behavior: role.env has LOGLEVEL of the process that calls the component, and WARNING without one.
# Matters: what compares job descriptions (caches, reviews, tools that apply changes) sees another job in CI's debug mode.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat > "$work/stated" <<'END'
LOGLEVEL unset: WARNING
LOGLEVEL=INFO: INFO
END

cat > "$work/describe.py" <<'END'
from torchx.components.dist import ddp

print(ddp(script="train.py", image="example:1", j="2x1").roles[0].env["LOGLEVEL"])
END

python3 -m venv --without-pip "$work/venv"
pip=(python3 -m pip --python "$work/venv/bin/python")
"${pip[@]}" install --quiet --no-compile torchx==0.7.0
describe=("$work/venv/bin/python" -W ignore "$work/describe.py")
{
    echo "LOGLEVEL unset: $(env -u LOGLEVEL "${describe[@]}")"
    echo "LOGLEVEL=INFO: $(LOGLEVEL=INFO "${describe[@]}")"
} | tee "$work/seen"
diff --unified --label stated --label seen "$work/stated" "$work/seen"
echo "as stated"
