"""The Pulumi plugin of the components, run from a checkout; see `plugin`."""

import sys
from pathlib import Path

# In a checkout that is not installed the sdk is next to this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sdk"))

from torchx_pulumi_components.plugin import main

if __name__ == "__main__":
    main()
