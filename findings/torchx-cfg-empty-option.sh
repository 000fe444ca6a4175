#!/usr/bin/env bash
# An option without a value at the end of TorchX's `-cfg` becomes a part of the value before it.
#
# Versions: torchx 0.7.0, torchx-nightly 2026.10.26.
# Guess: `namespace=` at the end is an empty value, or an error that names the option.
# Behavior: the text is added to the value before it, and the option is absent. At the start the same text is an error.
# Matters: `-cfg "queue=$QUEUE,namespace=$NAMESPACE"` with an unset NAMESPACE asks for the queue `default,namespace`.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat > "$work/stated" <<'END'
queue=default,namespace= -> {'queue': 'default,namespace'}
queue=default,namespace=prod -> {'queue': 'default', 'namespace': 'prod'}
namespace=,queue=default -> ValueError
queue=default,namespace=,kube_context=dev -> ValueError
END

cat > "$work/parse.py" <<'END'
from torchx.specs import runopts

options = runopts()
for name in ("queue", "namespace", "kube_context"):
    options.add(name, type_=str, help=name)
for text in (
    "queue=default,namespace=",
    "queue=default,namespace=prod",
    "namespace=,queue=default",
    "queue=default,namespace=,kube_context=dev",
):
    try:
        print(text, "->", options.cfg_from_str(text))
    except ValueError as error:
        print(text, "->", type(error).__name__)
END

python3 -m venv --without-pip "$work/venv"
pip=(python3 -m pip --python "$work/venv/bin/python")
for package in torchx==0.7.0 torchx-nightly==2026.10.26; do
    "${pip[@]}" install --quiet --no-compile "$package"
    echo "== $package"
    "$work/venv/bin/python" -W ignore "$work/parse.py" | tee "$work/seen"
    diff --unified --label stated --label "seen with $package" "$work/stated" "$work/seen"
    "${pip[@]}" uninstall --quiet --yes "${package%%==*}"
done
echo "as stated"
