"""The command line: `python -m tools.bootstrap ensure|list|env|clean`."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Sequence

from tools.bootstrap import BootstrapError, ensure, provisioner, pulumi_environment
from tools.bootstrap.parts import PARTS, part_named


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.bootstrap", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    getting = commands.add_parser("ensure", help="get parts that are missing, and print the folder of each")
    getting.add_argument("part", nargs="*", help="names of parts; none: all of them")
    listing = commands.add_parser("list", help="print what would be used, and from where; nothing is made")
    listing.add_argument("part", nargs="*", help="names of parts; none: all of them")
    commands.add_parser("clean", help="remove parts of other versions from the cache; not while a cluster is up")
    commands.add_parser("env", help="print `export` lines for running pulumi by hand")
    chosen = parser.parse_args(arguments)
    # Ends like Ctrl-C does: what is half made is removed on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if chosen.command == "env":
            for name, value in pulumi_environment().items():
                print(f"export {name}={shlex.quote(value)}")
            return 0
        if chosen.command == "clean":
            for folder in provisioner().clear_outdated(PARTS):
                print(f"removed {folder}")
            return 0
        names = chosen.part or [part.name for part in PARTS]
        if chosen.command == "ensure":
            for name, folder in ensure(names).items():
                print(f"{name}\t{folder}")
        else:
            for part in [part_named(name) for name in names]:
                choice = provisioner().choose(part)
                print(f"{part.name:24} {choice.origin}" + (f"\n{'':24} {choice.folder}" if choice.folder else ""))
    except BootstrapError as error:
        print(f"bootstrap: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bootstrap: stopped; what is finished stays in the cache", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
