#!/usr/bin/env bash
# A state in a folder is unreadable for Pulumi when an empty file lies beside it, as a full disk or a kill leaves it.
#
# Version: Pulumi CLI 3.274.1, backend file://.
# Guess: NAME.json is the state; another file beside it decides nothing.
# Behavior: each command fails with EOF while NAME.json.attrs is empty, and works once that file is removed. Pulumi writes
#   it for each state, unless the address of the backend has ?metadata=skip.
# Matters: the state looks lost, and is whole.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
with=$(cd "$(dirname "$0")" && pwd)/with
cd "$work"
source "$with/pulumi.bash"

cat > stated <<'END'
whole: {}
empty .attrs: EOF
without .attrs: {}
backend file://...: dev.json dev.json.attrs
backend file://...?metadata=skip: dev.json
END

mkdir project && echo $'name: findings\nruntime: python' > project/Pulumi.yaml
pulumi() { command pulumi --cwd project "$@" 2>&1; }
answer() { pulumi stack output --stack dev --json > out && cat out || grep -o EOF out | head -n 1; }
states() { find "$1/.pulumi/stacks/findings" -type f -name 'dev.json*' ! -name '*.bak*' -printf '%f\n' | sort | xargs; }
pulumi stack init dev > /dev/null
made=$(states .)
{
    echo "whole: $(answer)"
    : > .pulumi/stacks/findings/dev.json.attrs
    echo "empty .attrs: $(answer)"
    rm .pulumi/stacks/findings/dev.json.attrs
    echo "without .attrs: $(answer)"
    echo "backend file://...: $made"
    mkdir other && PULUMI_BACKEND_URL="file://$PWD/other?metadata=skip" pulumi stack init dev > /dev/null
    echo "backend file://...?metadata=skip: $(states other)"
} | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
