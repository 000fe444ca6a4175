#!/usr/bin/env bash
# After `pulumi up --continue-on-error`, an export that could not be computed is stored as a text of digits.
#
# Versions: Pulumi CLI 3.274.1, Python package pulumi 3.272.0.
# Guess: an export of a resource that failed is absent, or keeps its last value.
# Behavior: `pulumi stack output` answers with the UUID by which the engine marks unknown values between its processes.
# Matters: scripts, StackReferences and dashboards take it for the value: an address, a name, an id.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
with=$(cd "$(dirname "$0")" && pwd)/with
cd "$work"
source "$with/pulumi.bash"

cat > stated <<'END'
first: succeeded {'address': '10.0.0.1', 'other': 'x'}
with a failure: failed {'address': '04da6b54-80e4-46f7-96ec-b56ff0331ba9', 'other': 'x'}
END

cat > program.py <<'END'
import pulumi
from stacks import exports, up


def good():
    pulumi.export("address", "10.0.0.1")
    pulumi.export("other", "x")


def with_a_failure():
    pulumi.export("address", pulumi.StackReference("organization/findings/absent").get_output("address"))
    pulumi.export("other", "x")


print("first:", up(good)[0], exports())
print("with a failure:", up(with_a_failure, continue_on_error=True)[0], exports())
END
venv/bin/python program.py | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
