"""The components as a Pulumi plugin straight from a checkout; what is hosted is said in `plugin`."""

import sys
from pathlib import Path

# A checkout that is not installed: the sdk lies beside this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sdk"))

from torchx_pulumi_components.plugin import main

if __name__ == "__main__":
    main()
