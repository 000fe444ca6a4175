"""What was made of 745 jobs, and what is made of them now: a run that exists keeps identity, names and stored forms.

A failure here means that running jobs would be relaunched, lost or not found after an upgrade. `__main__` says how
later versions are recorded. `TORCHX_PULUMI_RECORDINGS=all` registers every job with the mock engine; else those whose
names, places or later changes are special.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pulumi
import pytest
import torchx
from torchx_pulumi.model.app_entry import read_entry, write_entry
from torchx_pulumi.model.labels import LAUNCH
from torchx_pulumi.model.launch_options import OnRunningChange
from torchx_pulumi.model.run_record import IDENTITY_VERSION, RunRecord, read_record, write_record
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.outputs.reader import read_outputs, read_schema
from torchx_pulumi.planning.names import job_name, owner_digest
from torchx_pulumi.runs.decision import Action, decide
from torchx_pulumi.runs.identity import field_digests
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.run_hash import run_hash
from torchx_pulumi.schedulers import backend_of
from torchx_pulumi_components.read_args import read_args

from tests.recordings import producing
from tests.recordings.comparing import assert_same, by_urn, recorded, with_specs
from tests.recordings.jobs import ProgramJob, TorchxJob, program_jobs, torchx_jobs
from tools.release import Release, check_recordings, check_released, version_of

RELEASE = "v0_2_0"
PROGRAMS = list(program_jobs())
APPS = list(torchx_jobs())
WHOLE = os.environ.get("TORCHX_PULUMI_RECORDINGS") == "all"
USUAL = ("role-", "option-", "generated-")
"""Jobs that only the whole set registers."""
REGISTERED = [job for job in PROGRAMS if WHOLE or not job.id.partition("/")[2].startswith(USUAL)]
REFUSED = {f"volcano-pods/generated-{number}" for number in (12, 13)} | {
    "mcad-v1beta1/generated-12",
    "mcad-v1beta2/generated-0",
}
"""Jobs with replicas that the API server refuses: their overlay makes a container without an image."""
RESHAPED = {f"mcad-v1beta2/generated-{number}" for number in (1, 2, 6, 11, 13, 14)}
"""Jobs of more than 8 replicas, of which a new launch has Indexed Jobs: the operator refuses so many pods."""
LAUNCHED = [job for job in APPS if WHOLE or not job.id.partition("/")[2].startswith(USUAL)]


def each(jobs: Sequence[Any]) -> Callable[[Callable[[Any], None]], Callable[[], None]]:
    """Make a test of all jobs from a check of one; a failure names each job that fails, and shows the first one."""

    def of(check: Callable[[Any], None]) -> Callable[[], None]:
        def test() -> None:
            failed: dict[str, Exception] = {}
            for job in jobs:
                try:
                    check(job)
                except Exception as error:  # noqa: BLE001
                    failed[job.id] = error
            if failed:
                first = next(iter(failed.values()))
                raise AssertionError(f"{len(failed)} of {len(jobs)} jobs: {', '.join(failed)[:2000]}") from first

        return test

    return of


def ups(job: ProgramJob) -> Any:
    return recorded(RELEASE, "programs")[job.id]


def app(job: TorchxJob) -> Any:
    return recorded(RELEASE, "apps")[job.id]


def order(job: TorchxJob) -> Any:
    """Return the order of a launch, as it was written down."""
    (found,) = [value for path, value in app(job)["files"].items() if path.endswith("order.json")]
    # The keys of recordings are sorted; an order has its roles in the order of the app.
    names = [role["name"] for role in found["outputs"]["declared"]["roles"]]
    roles = sorted(found["roles"].items(), key=lambda item: names.index(item[1]["name"]))
    return {**found, "roles": dict(roles)}


def record_of(value: Any) -> RunRecord:
    record = read_record(value)
    assert record is not None
    return record


def test_recordings_and_released_schemas_are_frozen() -> None:
    root = Path(__file__).resolve().parents[2]
    release = Release(root=root, version=version_of(root), scratch=Path())
    assert [*check_recordings(release), *check_released(release)] == []


def test_the_recordings_are_of_these_jobs() -> None:
    assert set(recorded(RELEASE, "programs")) == {job.id for job in PROGRAMS}
    assert set(recorded(RELEASE, "apps")) == {job.id for job in APPS}
    assert len(PROGRAMS) + len(APPS) >= 600


@each(PROGRAMS)
def test_digests_and_hash_of_a_recorded_run_stay_and_keep_it(job: ProgramJob) -> None:
    for args, registered in zip(job.ups, ups(job), strict=True):
        record = record_of(producing.record_in(registered))
        wanted = read_args(job.name, args, job.scheduler)
        assert record.identity_version == IDENTITY_VERSION
        version, rerun = record.identity_version, wanted.settings.rerun
        digests = field_digests(wanted.spec, wanted.options, rerun=rerun, version=version)
        assert_same(digests, dict(record.digests))
        found = run_hash(digests, record.launched, wanted.spec, wanted.options, rerun=rerun, version=version)
        assert found == record.hash
        fixed_name = wanted.settings.job_name
        decision = decide(
            record,
            replace(record, digests=digests, launched={}),
            JobStatus(state=JobState.RUNNING, reason=Reason.NOT_FOUND, message=""),
            OnRunningChange.FAIL,
            producing.NOW,
            renamed=fixed_name is not None and fixed_name != record.job_name,
        )
        assert (decision.action, list(decision.fields)) == (Action.KEEP, [])


@each(PROGRAMS)
def test_owner_and_name_of_a_recorded_run_stay(job: ProgramJob) -> None:
    component = next(item for item in ups(job)[0] if producing.kind_of(item["urn"]).endswith("TrainingJob"))
    owner = owner_digest(job.organization or "organization", job.project, job.stack, component["urn"])
    labels = [(item["inputs"].get("metadata") or {}).get("labels") or {} for item in ups(job)[0]]
    assert {each[LAUNCH] for each in labels if LAUNCH in each} == {owner}
    record = record_of(producing.record_in(ups(job)[0]))
    name = job_name(job.name, record.hash, owner, tail=tail_of(job))
    assert record.job_name == job.ups[0].get("job_name", name)


def tail_of(job: ProgramJob) -> int:
    """Return how many characters pod names of a job have beyond its name."""
    wanted = read_args(job.name, job.ups[0], job.scheduler)
    return backend_of(wanted.options).name_tail(wanted.spec, wanted.options)


@each(REGISTERED)
def test_a_program_registers_a_recorded_run_as_before(job: ProgramJob) -> None:
    stored = ups(job)
    for index in range(1, len(job.ups)):
        registered = producing.up(job, index, with_specs(stored[index - 1], stored[0]))
        assert_same(by_urn(registered), by_urn(stored[index]))


@each([job for job in REGISTERED if job.id not in REFUSED])
def test_a_new_run_of_a_program_is_registered_as_recorded(job: ProgramJob) -> None:
    assert_same(by_urn(producing.up(job, 0, None)), by_urn(ups(job)[0]))


@each([job for job in PROGRAMS if job.id in REFUSED])
def test_a_new_run_that_no_cluster_can_start_is_refused(job: ProgramJob) -> None:
    with pytest.raises(pulumi.RunError, match=r"pod_overlay: leaves .* without an image"):
        producing.up(job, 0, None)


@pytest.mark.skipif(torchx.__version__ != "0.7.0", reason="recorded with TorchX 0.7.0; AppDefs of others differ")
@each([job for job in APPS if job.id not in RESHAPED])
def test_a_launch_by_torchx_is_written_down_as_before(job: TorchxJob) -> None:
    with producing.environment(job.user) as folder:
        made = producing.launch(job, folder)
    stored = app(job)
    assert_same(_without_specs(made), _without_specs({key: stored[key] for key in made}))


def _without_specs(made: dict[str, Any]) -> dict[str, Any]:
    """Leave the specs of objects out of the orders: golden files have them."""
    files = {}
    for path, value in made["files"].items():
        if path.endswith("order.json"):
            objects = [{key: part for key, part in item.items() if key != "spec"} for item in value["objects"]]
            value = {**value, "objects": objects}
        files[path] = value
    return {**made, "files": files}


@each(LAUNCHED)
def test_a_recorded_order_registers_the_same(job: TorchxJob) -> None:
    assert_same(by_urn(producing.register(order(job))), by_urn(app(job)["registered"]))


@each(LAUNCHED)
def test_a_recorded_program_goes_on_with_its_app(job: TorchxJob) -> None:
    stored = app(job)
    registered = _with_objects(stored["registered"], order(job)["objects"])
    taken = producing.take_over(stored["program"], order(job)["entry"], registered)
    assert_same(by_urn(taken), by_urn(stored["taken"]))


def _with_objects(registered: list[dict[str, Any]], objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the specs of an order's objects into what was registered of it."""
    specs = {(item["kind"], item["metadata"]["name"]): item.get("spec") for item in objects}

    def known(item: dict[str, Any]) -> dict[str, Any]:
        inputs = item["inputs"]
        if "metadata" not in inputs:
            return item
        return {**item, "inputs": {**inputs, "spec": specs[inputs["kind"], inputs["metadata"]["name"]]}}

    return [known(item) for item in registered]


@each(PROGRAMS)
def test_records_are_read_and_written_back_without_loss(job: ProgramJob) -> None:
    for registered in ups(job):
        for value in (producing.record_in(registered), producing.one_of(registered, "-intent")):
            assert_same(producing.through_json(write_record(record_of(value))), value)


@each(APPS)
def test_entries_orders_and_observations_are_read_and_written_back_without_loss(job: TorchxJob) -> None:
    for path, value in app(job)["files"].items():
        if path.endswith("order.json"):
            assert_same(producing.order_again(value), value)
            assert_same(producing.through_json(write_record(record_of(value["record"]))), value["record"])
            assert_same(producing.through_json(write_entry(read_entry(value["entry"], path))), value["entry"])
        elif path.startswith("runs/observed/"):
            assert_same(producing.observation_again(value), value)
        else:
            assert_same(producing.through_json(write_entry(read_entry(value, path))), value)


def test_recorded_outputs_are_read_and_fit_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(read_schema())
    for job in torchx_jobs():
        exports = order(job)["exports"]
        assert producing.through_json(read_outputs(exports))["app"] == exports["torchx"]["app"]
        validator.validate(exports["torchx"])


@each(APPS)
def test_the_index_finds_what_was_recorded_in_it(job: TorchxJob) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, value in app(job)["files"].items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(json.dumps(value, separators=(",", ":")))
        index = RunIndex(folder / "runs")
        entry = index.find(order(job)["entry"]["app_id"], job.scheduler)
        assert entry is not None
        observation = index.observation(entry)
        assert observation is not None
        assert observation["state"] == "FAILED"
        index.update(entry, lambda _: entry)
        index.update(entry, lambda _: None)
        assert index.all() == []
