"""The command line: `python -m tools.images NAME...` prepares images in the cache."""

from __future__ import annotations

import argparse
import sys

from tools.images import NAMES, ImageError, prepare


def main() -> int:
    """Prepare the images and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.images", description=__doc__)
    parser.add_argument("name", nargs="+", choices=NAMES)
    try:
        for name in parser.parse_args().name:
            prepare(name)
    except ImageError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
