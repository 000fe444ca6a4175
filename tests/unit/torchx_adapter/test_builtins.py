from __future__ import annotations

import re
from pathlib import Path

import pytest
from torchx.schedulers import DEFAULT_SCHEDULER_MODULES
from torchx_pulumi_stacks import builtins

ROOT = Path(__file__).resolve().parents[3]


def entry_points() -> dict[str, str]:
    text = (ROOT / "pyproject.toml").read_text()
    section = text.partition('[project.entry-points."torchx.schedulers"]')[2].partition("\n\n")[0]
    return dict(re.findall(r'^(\w+) = "(.+)"$', section, re.MULTILINE))


def test_every_scheduler_of_torchx_is_forwarded_to_and_the_default_is_the_same() -> None:
    names = list(entry_points())
    assert names[0] == next(iter(DEFAULT_SCHEDULER_MODULES))
    assert set(DEFAULT_SCHEDULER_MODULES) <= set(names)
    assert names[-2:] == ["pulumi_volcano", "pulumi_mcad"]


def test_forwarded_schedulers_are_torchx_own() -> None:
    scheduler = builtins.create_local_cwd("s")
    assert type(scheduler).__module__ == "torchx.schedulers.local_scheduler"
    scheduler.close()


def test_what_the_installed_torchx_lacks_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchx.schedulers.DEFAULT_SCHEDULER_MODULES", {})
    with pytest.raises(ModuleNotFoundError, match="no scheduler 'ray'"):
        builtins.create_ray("s")


def test_every_entry_point_is_there() -> None:
    for target in entry_points().values():
        module, _, name = target.partition(":")
        if module.endswith("builtins"):
            assert callable(getattr(builtins, name))
