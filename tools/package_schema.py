"""Write the schema of the Pulumi package, with the facts of the installed one: `python -m tools.package_schema`."""

from __future__ import annotations

import json
import sys

from torchx_pulumi_components.package_schema import installed_facts
from torchx_pulumi_components.plugin import schema

if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(installed_facts()), indent=2) + "\n")
