#!/usr/bin/env bash
# A failed `pulumi up` prints that it deletes exports that it keeps, and stores others of the program that failed.
#
# Versions: Pulumi CLI 3.274.1, Python package pulumi 3.272.0.
# Guess: what `up` prints under "Outputs" is what `pulumi stack output` answers afterwards; a failed one changes none.
# Behavior: if an export fails, each export of the last deployment is printed with a minus, and all of them stay. If the
#   program raises an error after an export, the new value is stored.
# Matters: the log reads as if other stacks had lost their values, and a stack may export what it never deployed.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
with=$(cd "$(dirname "$0")" && pwd)/with
cd "$work"
source "$with/pulumi.bash"

cat > stated <<'END'
an export fails: failed
  - address: "10.0.0.1"
  - other  : "x"
afterwards: {'address': '10.0.0.1', 'other': 'x'}
the program fails after an export: failed
afterwards: {'address': '10.0.0.2', 'other': 'x'}
END

cat > program.py <<'END'
import pulumi
from stacks import exports, up


def good():
    pulumi.export("address", pulumi.Stash("stash", input="10.0.0.1").output)
    pulumi.export("other", "x")


def an_export_fails():
    pulumi.export("address", pulumi.Stash("stash", input="10.0.0.1").output.apply(refuse))
    pulumi.export("other", "x")


def refuse(address):
    raise ValueError(f"{address} is refused")


def the_program_fails_after_an_export():
    pulumi.Stash("stash", input="10.0.0.1")
    pulumi.export("address", "10.0.0.2")
    raise pulumi.RunError("refused")


up(good)
for program in (an_export_fails, the_program_fails_after_an_export):
    result, lines = up(program)
    print(f"{program.__name__.replace('_', ' ')}: {result}")
    print("".join(f"{line}\n" for line in lines if line.startswith("  - ")) + f"afterwards: {exports()}")
END
venv/bin/python program.py | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
