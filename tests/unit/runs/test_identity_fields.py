import dataclasses
from dataclasses import dataclass

import pytest
from torchx_pulumi.model.job_spec import JobSpec, MountSpec, RoleSpec
from torchx_pulumi.model.run_record import IDENTITY_VERSION, IDENTITY_VERSIONS
from torchx_pulumi.runs.identity import field_digests
from torchx_pulumi.runs.identity_fields import TABLES, TABLES_OF, canonical
from torchx_pulumi.schedulers.volcano.options import VolcanoOptions

NOT_IDENTITY = {RoleSpec: {"name", "image_digest", "metadata"}, VolcanoOptions: {"layout"}}
"""Fields without a row: a role's name is in the paths of its fields, and a layout runs the same replicas."""

SPEC = JobSpec(name="job", roles=(RoleSpec(name="trainer", image="app:1", entrypoint="python"),))


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_every_field_has_a_row_and_every_row_a_field(kind: type) -> None:
    fields = {item.name for item in dataclasses.fields(kind)}
    assert {row.attribute for row in TABLES[kind]} == fields - NOT_IDENTITY.get(kind, set())
    assert len({row.path for row in TABLES[kind]}) == len(TABLES[kind])


def test_every_version_has_its_tables() -> None:
    assert set(TABLES_OF) == set(IDENTITY_VERSIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterOptions(VolcanoOptions):
    """Options of a later release: other defaults, and a new field."""

    namespace: str = "training"
    reserved_millicpu: int = 0
    scheduler_name: str = "other"
    colour: str = "blue"


def test_another_default_of_a_dataclass_changes_no_identity() -> None:
    said = LaterOptions(queue="q", namespace="default", reserved_millicpu=100, scheduler_name="volcano")
    assert field_digests(SPEC, said) == field_digests(SPEC, VolcanoOptions(queue="q"))
    left_open = field_digests(SPEC, LaterOptions(queue="q"))
    written = VolcanoOptions(queue="q", namespace="training", reserved_millicpu=0, scheduler_name="other")
    assert left_open == field_digests(SPEC, written)


def test_the_names_inside_of_a_value_are_fixed() -> None:
    mount = MountSpec(kind="bind", src="/a", dst="/b")
    written = {"kind": "bind", "src": "/a", "dst": "/b", "read_only": False, "permissions": "rwm"}
    assert canonical(mount, IDENTITY_VERSION) == written
