"""The same as outputs.sh in Python: `pulumi stack output --json | python outputs.py`."""

import sys

from torchx_pulumi import read_outputs

outputs = read_outputs(sys.stdin.read())
seen = outputs["observed"]
print(f"{outputs['app']['id']}: {seen['state']}, {seen['reason']}")
for diagnosis in seen["diagnoses"]:
    print(f"  {diagnosis['summary']}\n  do: {diagnosis['resolution']}")
for role in seen["roles"]:
    print(f"  {role['name']}: {role['counts']}")
sys.exit(seen["state"] == "FAILED")
