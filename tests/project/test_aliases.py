"""Names that documentation and generated programs of 0.1.0 import are found where they were."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timezone
from importlib import import_module

import pytest
from torchx_pulumi.aliases import ALIASES
from torchx_pulumi.testing import FakeCluster

IMPORTED = (
    "torchx_pulumi.cluster KubernetesCluster",
    "torchx_pulumi.diagnosis diagnose_refusal",
    "torchx_pulumi.doors.appfile read_app_file",
    "torchx_pulumi.fleet_reading FleetRow",
    "torchx_pulumi.forms FORMS",
    "torchx_pulumi.images patch_image",
    "torchx_pulumi.options Gang",
    "torchx_pulumi.outputs.reader read_outputs",
    "torchx_pulumi.outputs.reader read_schema",
    "torchx_pulumi read_fleet",
    "torchx_pulumi read_outputs",
    "torchx_pulumi_components VolcanoTrainingJob",
    "torchx_pulumi_components MCADTrainingJob",
    "torchx_pulumi_components export_outputs",
    "torchx_pulumi_components.images patched_image",
)
"""Modules and names that the documentation, the examples and the programs of `torchx-pulumi eject` of 0.1.0 import."""
NAMES = [(module, name) for module, names in ALIASES.items() for name in names]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_name_of_an_earlier_release_is_the_one_of_today(module: str, name: str) -> None:
    found = getattr(import_module(module), name)
    assert found == getattr(import_module(ALIASES[module][name]), name)
    assert name in import_module(module).__all__


@pytest.mark.parametrize("imported", IMPORTED)
def test_an_import_of_the_first_documentation_works(imported: str) -> None:
    module, name = imported.split()
    assert getattr(import_module(module), name) is not None


def test_a_name_that_is_not_in_the_table_is_not_found() -> None:
    with pytest.raises(ImportError, match="cannot import name"):
        from torchx_pulumi.options import Nothing  # type: ignore[import-not-found]  # noqa: F401
    with pytest.raises(ModuleNotFoundError):
        import_module("torchx_pulumi.not_a_module")


def test_the_program_of_the_first_diagnosis_page_runs() -> None:
    from torchx_pulumi.forms import FORMS  # type: ignore[import-not-found]
    from torchx_pulumi.options import Gang

    form = FORMS["volcano"][1][Gang.JOB]
    seen = form.look(FakeCluster(), "default", "train-x1")
    assert [diagnosis.reason.value for diagnosis in form.diagnose(seen, datetime.now(timezone.utc))] == ["NotFound"]
    assert {scheduler: option for scheduler, (option, _) in FORMS.items()} == {"volcano": "gang", "mcad": "api_version"}


def test_the_table_imports_nothing_until_a_name_is_used() -> None:
    script = (
        "import sys, torchx_pulumi.doors.appfile, torchx_pulumi.forms\n"
        "print([name for name in sys.modules if name.startswith(('torchx_pulumi.inputs', 'torchx_pulumi.schedulers'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
