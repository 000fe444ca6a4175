"""The page of a real controller on a phone: a job appears, its log is followed, its end arrives, without a reload."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.fleet.test_controller_page import WAIT_MS, View
from tests.e2e.fleet.test_controller_pages import running
from tests.e2e.fleet.test_fleet_page import browser
from tests.e2e.torchx_cli import TorchxCli

__all__ = ["browser"]

pytestmark = pytest.mark.e2e

COMPONENT = """
from torchx import specs

SCRIPT = (
    "trap 'exit 0' TERM; i=0; "
    "while true; do i=$((i+1)); printf '\\\\033[32mline\\\\033[0m %s\\\\n' $i; sleep 0.2; done"
)

def endless(image: str) -> specs.AppDef:
    role = specs.Role(name="main", image=image, entrypoint="sh", args=["-c", SCRIPT], num_replicas=2,
                      resource=specs.Resource(cpu=0.1, gpu=0, memMB=32))
    return specs.AppDef("endless", [role])
"""


@pytest.fixture
def cli(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path) -> TorchxCli:
    (tmp_path / "mine.py").write_text(COMPONENT)
    return TorchxCli(pulumi_env, tmp_path, kubeconfig)


def test_a_job_is_followed_on_a_phone(
    browser: Browser, cli: TorchxCli, image: str, namespace: str, tmp_path: Path
) -> None:
    with running(cli, "--namespace", namespace) as (_, site):
        phone = browser.new_context(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
        view = View(f"http://127.0.0.1:{site.port}/?token={site.token}", phone)
        page = view.open()
        expect(page.locator("#empty")).to_be_visible()
        config = f"namespace={namespace},queue=default"
        words = ("-s", "pulumi_volcano", "-cfg", config, "mine.py:endless", "--image", image)
        handle = cli.torchx("run", "--workspace", "", *words).handle
        row = page.locator("#apps tbody tr")
        expect(row).to_contain_text("RUNNING", timeout=6 * WAIT_MS)
        page.get_by_role("link", name=handle.rpartition(":")[2]).tap()
        expect(page.locator("#panel-state")).to_contain_text("RUNNING")
        page.locator("#tab-log").tap()
        for line in ("line 3", "line 9"):
            expect(page.locator("#log")).to_contain_text(f"{line}\n", timeout=2 * WAIT_MS)
        page.screenshot(path=tmp_path / "phone.png")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.select_option("#log-replica", "main/1")
        expect(page.locator("#log .note").first).to_contain_text("main-1")
        expect(page.locator("#log")).to_contain_text("line 3\n", timeout=2 * WAIT_MS)
        page.locator("#tab-events").tap()
        expect(page.locator("#view-events")).to_contain_text("Scheduled")
        cli.ours("cancel", handle)
        expect(page.locator("#panel-state")).to_contain_text("CANCELLED", timeout=6 * WAIT_MS)
        page.locator("#panel-close").tap()
        expect(row).to_contain_text("CANCELLED")
        view.check()
        phone.close()
