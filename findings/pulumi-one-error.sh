#!/usr/bin/env bash
# Of two Outputs that fail in one Pulumi program, one error is told, now this one and now the other.
#
# Versions: Pulumi CLI 3.274.1, Python package pulumi 3.272.0.
# Guess: both errors are told, as both are found in the same run; or the first one, always.
# Behavior: one is told in each of six runs. The SDK keeps the Outputs in a set, waits for one after the other and ends the
#   program with the first error that it meets: in three runs by hand "b", "a", "b".
# Matters: a program of many checked parts has to be run once for each mistake, and tests of the message fail now and then.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
with=$(cd "$(dirname "$0")" && pwd)/with
cd "$work"
source "$with/pulumi.bash"

cat > stated <<'END'
6 runs of a program with 2 errors: {('failed', '1 error told')}
END

cat > program.py <<'END'
import pulumi
from stacks import up


def refuse(name):
    raise ValueError(f"{name} is refused")


def program():
    for name in ("a", "b"):
        pulumi.Output.from_input(name).apply(refuse)


def run(number):
    result, lines = up(program, f"run{number}")
    told = [name for name in ("a", "b") if any(f"{name} is refused" in line for line in lines)]
    return result, f"{len(told)} error told"


print("6 runs of a program with 2 errors:", {run(number) for number in range(6)})
END
venv/bin/python program.py | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
