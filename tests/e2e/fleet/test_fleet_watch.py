"""`torchx-pulumi fleet --watch` on a terminal, with a real job in a real cluster."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.fleet.controller_world import tell
from tests.e2e.project import eventually
from tests.e2e.torchx_cli import TorchxCli
from tests.fleet.views.test_watch import Terminal

pytestmark = pytest.mark.e2e


@pytest.fixture
def cli(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path) -> TorchxCli:
    return TorchxCli(pulumi_env, tmp_path, kubeconfig)


@pytest.mark.parametrize("scheduler", ["pulumi_volcano", pytest.param("pulumi_mcad", marks=pytest.mark.mcad)])
def test_a_real_job_is_followed_from_its_launch_to_its_end(
    cli: TorchxCli,
    namespace: str,
    cluster: Any,
    scheduler: str,
    look: KubernetesCluster,
    record_property: Callable[[str, Any], None],
) -> None:
    if not cluster.images:
        pytest.skip("the local cluster has no real node")
    (Path(cli.env["XDG_STATE_HOME"]) / "torchx-pulumi").mkdir(parents=True)
    # The last word, which does nothing, tells this script from those of other tests.
    script = f"trap 'exit 3' USR1; sleep 900 & wait; : {namespace}"
    terminal = Terminal(["fleet", "--watch"], cli.env, (160, 20))
    try:
        terminal.wait("no apps in", 60)
        options = f"namespace={namespace}" + (",queue=default" if scheduler == "pulumi_volcano" else "")
        handle = cli.torchx(
            "run", "--workspace", "", "-s", scheduler, "-cfg", options,
            "utils.sh", "--image", str(cluster.images["busybox"]), "sh", "-c", script,
        ).handle  # fmt: skip
        terminal.wait("RUNNING +Running +1/1 .*? live ", 240)
        tell(script)
        begun = time.monotonic()
        terminal.wait("FAILED +ExitCode", 180)
        record_property("seconds from RUNNING to the end on the screen", round(time.monotonic() - begun, 1))
        # Nothing was written: a watch only reads.
        (path,) = Path(cli.env["XDG_STATE_HOME"]).rglob(".pulumi/stacks/torchx/*.json")
        outputs = json.loads(path.read_text())["checkpoint"]["latest"]["resources"][0]["outputs"]
        assert outputs["state"] != "FAILED"
        cli.ours("delete", handle)
        terminal.wait("no apps in", 120)
        terminal.press("\x03")
        code, rest = terminal.ended()
        assert code == 130
        assert re.search("Traceback|warning", rest) is None
    finally:
        terminal.close()
    eventually(lambda: look.list(VOLCANO_JOB, namespace) == [])
