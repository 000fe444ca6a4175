"""The supported versions of the Kubernetes provider are the same everywhere; the newest is the one that is tested."""

from __future__ import annotations

import re
from pathlib import Path

from torchx_pulumi.model.versions import NEWEST_TESTED_PROVIDER, OLDEST_PROVIDER, read_version, version_text

from tools.bootstrap.parts import part_named

ROOT = Path(__file__).resolve().parents[3]


def test_the_newest_provider_is_that_of_the_pinned_sdk() -> None:
    for name in ("dev", "nightly"):
        pin = re.search(r"^pulumi-kubernetes==(.+)$", (ROOT / f"requirements/{name}.txt").read_text(), re.MULTILINE)
        assert pin is not None
        assert read_version(pin[1]) == NEWEST_TESTED_PROVIDER


def test_the_oldest_provider_is_that_of_the_package_and_of_the_tools() -> None:
    assert f'"pulumi-kubernetes>={version_text(OLDEST_PROVIDER)},<5"' in (ROOT / "pyproject.toml").read_text()
    installed = part_named("kubernetes-provider").installed
    assert installed is not None
    assert installed.at_least == OLDEST_PROVIDER
