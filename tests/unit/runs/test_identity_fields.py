import dataclasses

import pytest
from torchx_pulumi.model.job_spec import JobSpec, MountSpec, RoleSpec
from torchx_pulumi.model.options import Options, option, option_table
from torchx_pulumi.model.run_record import IDENTITY_VERSION, IDENTITY_VERSIONS
from torchx_pulumi.runs.identity import field_digests
from torchx_pulumi.runs.identity_fields import ALWAYS, TABLES, TABLES_OF, canonical, identity_rows
from torchx_pulumi.schedulers.appwrapper.options import MCADOptions
from torchx_pulumi.schedulers.volcano.options import VolcanoOptions

NOT_IDENTITY = {RoleSpec: {"name", "image_digest", "metadata"}}
"""Fields without a row: a role's name is in the paths of its fields."""

SPEC = JobSpec(name="job", roles=(RoleSpec(name="trainer", image="app:1", entrypoint="python"),))


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_every_field_has_a_row_and_every_row_a_field(kind: type) -> None:
    fields = {item.name for item in dataclasses.fields(kind)}
    assert {row.attribute for row in TABLES[kind]} == fields - NOT_IDENTITY.get(kind, set())
    assert len({row.path for row in TABLES[kind]}) == len(TABLES[kind])


def test_every_version_has_its_tables() -> None:
    assert set(TABLES_OF) == set(IDENTITY_VERSIONS)


SHARED = {
    "namespace": "default",
    "service_account": None,
    "reserved_millicpu": 100,
    "reserved_memmb": 1024,
    "efa_device_count": None,
    "labels": {},
    "annotations": {},
}
FROZEN = {
    VolcanoOptions: {
        **SHARED,
        "queue": ALWAYS,
        "priority_class": None,
        "gang": "job",
        "scheduler_name": "volcano",
        "ttl_seconds_after_finished": None,
        "network_topology": None,
        "plugins": None,
        "image_secrets": (),
        "success_roles": None,
        "start_after": None,
    },
    MCADOptions: {
        **SHARED,
        "priority": None,
        "priority_class_name": None,
        "image_secret": None,
        "coscheduler_name": None,
        "network": None,
        "pod_group_api": "scheduling.x-k8s.io/v1alpha1",
        "api_version": "v1beta1",
        "local_queue": None,
        "suspend": False,
        "requeuing_time_s": None,
        "requeuing_max_time_s": None,
        "requeuing_growth": None,
    },
}
"""Paths and defaults of options in identities of version 2. Never changed; a new option is a new line."""


@pytest.mark.parametrize("options", [VolcanoOptions(queue="q"), MCADOptions()])
def test_paths_and_defaults_of_options_are_frozen(options: Options) -> None:
    rows = identity_rows(options, 2)
    assert {row.path: row.default for row in rows} == FROZEN[type(options)]


def test_another_default_of_an_option_changes_no_identity() -> None:
    @option_table
    class LaterOptions(VolcanoOptions):
        """Options of a later release: another default, and a new field."""

        namespace: str = option("Namespace", default="training", counted_default="default")
        colour: str = option("Colour", default="blue")

    said = LaterOptions(queue="q", namespace="default")
    assert field_digests(SPEC, said) == field_digests(SPEC, VolcanoOptions(queue="q"))
    left_open = field_digests(SPEC, LaterOptions(queue="q"))
    assert left_open == field_digests(SPEC, VolcanoOptions(queue="q", namespace="training"))


def test_the_names_inside_of_a_value_are_fixed() -> None:
    mount = MountSpec(kind="bind", src="/a", dst="/b")
    written = {"kind": "bind", "src": "/a", "dst": "/b", "read_only": False, "permissions": "rwm"}
    assert canonical(mount, IDENTITY_VERSION) == written
