#!/usr/bin/env bash
# A check in an `apply` of a Pulumi component stops a program, and is dropped if the same component runs in a plugin.
#
# Versions: Pulumi CLI 3.274.1, Python package pulumi 3.272.0.
# Guess: an error in an Output ends the deployment, wherever the component runs.
# Behavior: in a program `up` fails. From a Python plugin, as other languages use the component, `up` succeeds without a
#   word, if no registration waits for that Output.
# Matters: tests of a component in Python pass, and its checks are off for users of TypeScript, Go and YAML.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
with=$(cd "$(dirname "$0")" && pwd)/with
cd "$work"
source "$with/pulumi.bash"

cat > stated <<'END'
component in the program: failed, the error is told
component in a plugin: succeeded, the error is not told
END

cat > component.py <<'END'
from typing import Optional, TypedDict

import pulumi


class CheckedArgs(TypedDict):
    value: pulumi.Input[str]


class Checked(pulumi.ComponentResource):
    value: pulumi.Output[str]

    def __init__(self, name: str, args: CheckedArgs, opts: Optional[pulumi.ResourceOptions] = None):
        super().__init__("findings:index:Checked", name, {}, opts)
        self.value = pulumi.Output.from_input(args["value"])
        self.value.apply(self._check)
        self.register_outputs({"value": self.value})

    def _check(self, value: str) -> None:
        raise ValueError("this value is refused")
END

cat > plugin.py <<'END'
from component import Checked
from pulumi.provider.experimental import component_provider_host

component_provider_host([Checked], "findings")
END
mkdir -p plugin
cat > plugin/pulumi-resource-findings <<END
#!/usr/bin/env bash
exec "$work/venv/bin/python" "$work/plugin.py" "\$@"
END
chmod +x plugin/pulumi-resource-findings
export PATH=$work/plugin:$PATH

cat > program.py <<'END'
import pulumi
from component import Checked
from stacks import up


class FromPlugin(pulumi.ComponentResource):
    def __init__(self, name, args):
        super().__init__("findings:index:Checked", name, args, remote=True)


def in_the_program():
    Checked("checked", {"value": "a"})


def in_a_plugin():
    FromPlugin("checked", {"value": "a"})


for program in (in_the_program, in_a_plugin):
    result, lines = up(program, program.__name__)
    told = "is told" if any("this value is refused" in line for line in lines) else "is not told"
    print(f"component {program.__name__.replace('_', ' ')}: {result}, the error {told}")
END
venv/bin/python program.py | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
