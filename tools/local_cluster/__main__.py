"""The command line: `python -m tools.local_cluster up|status|down`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from typing import Any

from tools.local_cluster.cluster import Cluster, down
from tools.local_cluster.errors import LocalClusterError
from tools.local_cluster.features import DEFAULT, FEATURES
from tools.local_cluster.interrupts import REQUESTS
from tools.local_cluster.layout import known_layouts
from tools.local_cluster.progress import Progress
from tools.local_cluster.status import status


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return the exit code: 0 done, 1 failed, 130 interrupted."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = int(options.run(options, Progress()))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader, for example `head`, has enough. Python would write the rest when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except LocalClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        # Everything is cleaned up: another signal while Python exits would only change the exit code.
        for request in REQUESTS:
            signal.signal(request, signal.SIG_IGN)
        print("interrupted", file=sys.stderr)
        return 130


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.local_cluster", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="up|status|down")
    bring = commands.add_parser("up", help="bring a cluster up, or say that it is up")
    bring.add_argument("--no-node", action="store_true", help="fake nodes only; needs no root")
    bring.add_argument("--kwok-nodes", type=_count, default=4, metavar="N", help="fake nodes (default 4)")
    images = "also put this image into the registry: python, pytorch"
    bring.add_argument("--image", action="append", default=[], metavar="NAME", help=images)
    bring.add_argument(
        "--features",
        type=lambda text: tuple(word for word in text.split(",") if word),
        default=DEFAULT,
        metavar="NAMES",
        help=f"of {', '.join(FEATURES)}, with commas between (default {','.join(DEFAULT)})",
    )
    bring.set_defaults(run=_up)
    show = commands.add_parser("status", help="show a cluster; exit code 1 when it is not running")
    show.add_argument("--all", action="store_true", help="every cluster of this user, in a line each")
    show.set_defaults(run=_status)
    end = commands.add_parser("down", help="end a cluster and remove everything of it")
    end.add_argument("--all", action="store_true", help="every cluster of this user")
    end.set_defaults(run=_down)
    for command in (bring, show, end):
        command.add_argument("--name", default="default", help="which cluster (default: default)")
        command.add_argument("--json", action="store_true", help="print data")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 1000:
        raise argparse.ArgumentTypeError(f"{text}: allowed are 0 to 1000")
    return number


def _up(options: argparse.Namespace, progress: Progress) -> int:
    cluster = Cluster.up(
        options.name,
        real_node=not options.no_node,
        kwok_nodes=options.kwok_nodes,
        images=("busybox", *options.image),
        features=options.features,
        progress=progress,
    )
    _print(cluster.status(), as_json=options.json)
    return 0


def _status(options: argparse.Namespace, _progress: Progress) -> int:
    if options.all:
        return _status_of_all(as_json=options.json)
    found = status(options.name)
    _print(found, as_json=options.json)
    return 0 if found["state"] == "running" else 1


def _status_of_all(*, as_json: bool) -> int:
    found = [status(layout.name) for layout in known_layouts()]
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(f"{one['name']}: {one['state']}" for one in found) or "there are no clusters")
    return 0


def _down(options: argparse.Namespace, progress: Progress) -> int:
    names = [layout.name for layout in known_layouts()] if options.all else [options.name]
    results = {name: down(name, progress=progress) for name in names}
    if options.json:
        print(json.dumps({"removed": [name for name, found in results.items() if found]}))
    else:
        for name, found in results.items():
            print(f"cluster {name!r} is gone" if found else f"there is no cluster {name!r}")
    return 0


def _print(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"cluster {found['name']!r}: {found['state']}")
    if "kubeconfig" not in found:
        others = [layout.name for layout in known_layouts() if layout.name != found["name"]]
        print(f"  other clusters: {', '.join(others) or 'none'}")
        return
    print(f"  kubeconfig  {found['kubeconfig']}")
    print(f"  registry    {found['registry'] or 'none'}")
    for name, reference in found["images"].items():
        print(f"  image       {name}: {reference}")
    for node in found["nodes"]:
        print(f"  node        {node['name']} ({node['kind']}): {'ready' if node['ready'] else 'not ready'}")
    for one in found["components"]:
        print(f"  component   {one['name']}: {'healthy' if one['healthy'] else 'NOT healthy, see ' + one['log']}")
    _print_placement(found)


def _print_placement(found: dict[str, Any]) -> None:
    fake = found["fake_nodes"]
    if fake["count"]:
        print(f"  fake pods   run until deleted, or as their annotations {' and '.join(fake['endings'])} say")
    if found["real_node"] and fake["count"]:
        taint = fake["toleration"]
        print("  placement   pods land on the real node; for a fake one give them")
        print(f"              nodeSelector {fake['node_selector']} and a toleration of {taint['key']}={taint['value']}")
    elif not found["real_node"]:
        print(f"  placement   no real node ({found['why_no_real_node']}): pods land on fake nodes and run no container")


if __name__ == "__main__":
    sys.exit(main())
