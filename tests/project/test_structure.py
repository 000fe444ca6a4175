"""Rules of the tree: each section enforces one rule of the architecture (docs/architecture.md)."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [path for name in ("sdk", "components", "stacks") for path in sorted((ROOT / name).rglob("*.py"))]


def strings_of(path: Path) -> set[str]:
    """Return the string constants of a module."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


# One module reads checkpoints.

CHECKPOINT_KEYS = {"checkpoint", "deployment", "pending_operations"}
CHECKPOINT_MODULE = "sdk/torchx_pulumi/stack_state/checkpoint.py"


def test_one_module_parses_checkpoints() -> None:
    found = {str(path.relative_to(ROOT)) for path in SOURCES if strings_of(path) & CHECKPOINT_KEYS}
    assert found == {CHECKPOINT_MODULE}


# Status reports state and facts. Only diagnosis writes explanations. One module reads container states.

SCHEDULERS = ROOT / "sdk" / "torchx_pulumi" / "schedulers"
EXPLAINING = {
    *(SCHEDULERS / "diagnosis").glob("*.py"),
    SCHEDULERS / "appwrapper" / "diagnosis.py",
    SCHEDULERS / "volcano" / "diagnosis.py",
    SCHEDULERS / "volcano" / "queues.py",
}
STATUS_TYPES = {"JobStatus", "ReplicaStatus", "Condition", "replace"}


def calls_of(path: Path) -> list[tuple[str, set[str]]]:
    """Return each call of a module: name of the function, and keywords whose value is not the name `message`."""
    nodes = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    return [
        (
            ast.unparse(node.func).rpartition(".")[2],
            {
                str(one.arg)
                for one in node.keywords
                if not (isinstance(one.value, ast.Name) and one.value.id == "message")
            },
        )
        for node in nodes
    ]


def test_only_diagnosis_makes_diagnoses() -> None:
    assert {path for path in SOURCES if any(name == "Diagnosis" for name, _ in calls_of(path))} <= EXPLAINING


def test_only_diagnosis_writes_the_messages_of_a_status() -> None:
    writers = {
        path
        for path in SOURCES
        if SCHEDULERS in path.parents
        and any(name in STATUS_TYPES and "message" in keywords for name, keywords in calls_of(path))
    }
    assert writers <= EXPLAINING


def test_the_messages_that_a_status_has_are_those_of_diagnosis() -> None:
    for path in SCHEDULERS.glob("*/status.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assigned = [
            ast.unparse(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and "message" in ast.unparse(node.targets[0])
        ]
        assert assigned in ([], ["explain_pod(pod, state)"])


def test_one_module_reads_exit_codes() -> None:
    readers = {path.relative_to(ROOT).as_posix() for path in SOURCES if "exitCode" in strings_of(path)}
    assert readers == {"sdk/torchx_pulumi/schedulers/pods/containers.py"}


# One function registers the resources and notes of a run, for components and for apps that `torchx run` launches.

REGISTRATIONS = {"Stash", "KubernetesObject", "TrainingRole", "CustomResource", "ProviderResource", "register_outputs"}
REGISTRATION_MODULE = "components/torchx_pulumi_components/resources.py"
PLATFORM_MODULE = "stacks/torchx_pulumi_stacks/platform.py"
"""Registers what jobs need around them, and no run."""


def test_one_module_registers_runs() -> None:
    found = {str(path.relative_to(ROOT)) for path in SOURCES if REGISTRATIONS & {name for name, _ in calls_of(path)}}
    assert found - {PLATFORM_MODULE} == {REGISTRATION_MODULE}


def test_components_and_apps_register_through_one_function() -> None:
    found = {path.name for path in SOURCES if any(name == "register_run" for name, _ in calls_of(path))}
    assert found == {"training_job.py", "prerendered.py"}
