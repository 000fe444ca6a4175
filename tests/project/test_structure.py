"""Rules of the tree: each section enforces one rule of the architecture (docs/architecture.md)."""

from __future__ import annotations

import ast
import functools
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pulumi

from tests.project.sources import ROOT, SOURCES, nodes_of


@functools.cache
def strings_of(path: Path) -> set[str]:
    """Return the string constants of a module."""
    return {node.value for node in nodes_of(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


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
    *(SCHEDULERS / "appwrapper").glob("*diagnosis.py"),
    SCHEDULERS / "volcano" / "diagnosis.py",
}
STATUS_TYPES = {"JobStatus", "ReplicaStatus", "Condition", "replace"}


@functools.cache
def calls_of(path: Path) -> list[tuple[str, set[str]]]:
    """Return each call of a module: name of the function, and keywords whose value is not the name `message`."""
    nodes = (node for node in nodes_of(path) if isinstance(node, ast.Call))
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
        assigned = [
            ast.unparse(node.value)
            for node in nodes_of(path)
            if isinstance(node, ast.Assign) and "message" in ast.unparse(node.targets[0])
        ]
        assert set(assigned) <= {"explain_pod(pod, state)", "explain_row(row, state)", "BEING_DELETED"}


def test_one_module_reads_exit_codes() -> None:
    readers = {path.relative_to(ROOT).as_posix() for path in SOURCES if "exitCode" in strings_of(path)}
    assert readers == {"sdk/torchx_pulumi/schedulers/pods/containers.py"}


# Two functions of one module register the objects and the notes of a run, for components and for apps that `torchx run`
# launches.

REGISTRATIONS = {"Stash", "Note", "KubernetesObject", "CustomResource", "ProviderResource", "register_outputs"}
REGISTRATION_MODULE = "components/torchx_pulumi_components/resources.py"
IMAGE_MODULE = "components/torchx_pulumi_components/patched_image.py"
"""Registers an image, and no run."""


def test_one_module_registers_runs() -> None:
    found = {str(path.relative_to(ROOT)) for path in SOURCES if REGISTRATIONS & {name for name, _ in calls_of(path)}}
    assert found == {REGISTRATION_MODULE, IMAGE_MODULE}


def test_components_and_apps_register_through_the_same_functions() -> None:
    for function in ("register_objects", "register_notes"):
        found = {path.name for path in SOURCES if any(name == function for name, _ in calls_of(path))}
        assert found == {"job_construction.py", "prerendered.py"}


# One module uses of Pulumi's SDK what its releases do not promise (docs/decisions/0022).

PULUMI_MODULE = "components/torchx_pulumi_components/pulumi_runtime.py"
PIECES_MODULE = "sdk/torchx_pulumi/model/pulumi_pieces.py"  # names them
RESOURCE_STATE = {"_aliases", "_childResources", "_data", "_protect", "_provider", "_providers", "_transformations"}
"""Attributes of resources and Outputs."""


def private_uses_of_pulumi(path: Path) -> set[str]:
    found = set()
    for node in nodes_of(path):
        names = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{each.name}" for each in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "runtime":
            names = [ast.unparse(node)]
        found |= {
            name
            for name in names
            if name.startswith("pulumi.runtime.") and name.split(".")[2] not in pulumi.runtime.__all__
        }
        state = node.attr if isinstance(node, ast.Attribute) else node.value if isinstance(node, ast.Constant) else None
        found |= {state} if isinstance(state, str) and state in RESOURCE_STATE else set()
    return found


def test_one_module_uses_what_pulumi_does_not_promise() -> None:
    found = {str(path.relative_to(ROOT)): private_uses_of_pulumi(path) for path in SOURCES}
    assert {path for path, uses in found.items() if uses} == {PULUMI_MODULE, PIECES_MODULE}, found


# Only schedulers/volcano names the groups, kinds, fields and phases of Volcano, and only schedulers/appwrapper those of
# AppWrappers. Names of public options, component arguments and entry points are excepted.

OBJECT_WORDS = {
    "schedulers/volcano/": (
        *("volcano.sh", "minAvailable", "taskStatusCount", "maxRetry", "ttlSecondsAfterFinished"),
        *("networkTopology", "AbortJob", "ResumeJob", "Aborting", "Aborted", "RestartJob", "RestartTask", "Inqueue"),
    ),
    "schedulers/appwrapper/": (
        *("codeflare", "GenericItems", "generictemplate", "custompodresources", "completionstatus", "schedulingSpec"),
        *("requeuing", "queuejobstate", "podSets", "kueue.x-k8s.io", "Resetting", "RunningHoldCompletion"),
        *("scheduling.x-k8s.io", "scheduling.sigs.k8s.io"),
    ),
}
"""Part of a path to texts that only modules with it may have."""

WORD_EXCEPTIONS = {
    "schedulers/appwrapper/": {"minAvailable"},
    "runs/identity_fields.py": {"scheduling.x-k8s.io", "requeuing"},
    "components/torchx_pulumi_components/": {
        "scheduling.x-k8s.io",
        "scheduling.sigs.k8s.io",
        "volcano.sh",
        "requeuing",
    },
}
"""Part of a path to words that are allowed in it: fields of the same name, frozen defaults, arguments of components."""

SCHEDULER_IMPORTS = {
    # Options that are fields of frozen identities, and of the arguments of public components.
    "runs/identity_fields.py": {"options"},
    "components/torchx_pulumi_components/": {"options"},
}
"""Part of a path to the modules of scheduler packages that it may import."""


def allowed_in(path: Path, table: dict[str, set[str]]) -> set[str]:
    """Return the names that a table allows a module."""
    return {item for part, items in table.items() if part in path.as_posix() for item in items}


def test_only_the_package_of_a_scheduler_names_its_objects() -> None:
    found = [
        (path.relative_to(ROOT).as_posix(), word)
        for path in SOURCES
        for package, words in OBJECT_WORDS.items()
        if package not in path.as_posix()
        for word in words
        if any(word in text for text in strings_of(path)) and word not in allowed_in(path, WORD_EXCEPTIONS)
    ]
    assert found == []


def test_only_the_registry_leads_to_the_packages_of_schedulers() -> None:
    found = []
    for path in SOURCES:
        if "/schedulers/volcano/" in path.as_posix() or "/schedulers/appwrapper/" in path.as_posix():
            continue
        for node in nodes_of(path):
            modules = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module == "torchx_pulumi.schedulers":
                modules = [f"{node.module}.{one.name}" for one in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            for module in modules:
                package, _, name = module.removeprefix("torchx_pulumi.schedulers.").partition(".")
                if package in ("volcano", "appwrapper") and name not in allowed_in(path, SCHEDULER_IMPORTS):
                    found.append((path.relative_to(ROOT).as_posix(), module))
    assert found == []


def test_no_module_decides_by_the_name_of_a_scheduler() -> None:
    found = [
        (path.relative_to(ROOT).as_posix(), node.lineno)
        for path in SOURCES
        if "/schedulers/volcano/" not in path.as_posix() and "/schedulers/appwrapper/" not in path.as_posix()
        for node in nodes_of(path)
        if isinstance(node, ast.Compare)
        for value in [node.left, *node.comparators]
        if isinstance(value, ast.Constant) and value.value in ("volcano", "mcad")
    ]
    assert found == []


# No sentinel values: what is not known is None, or has its own type.

SENTINELS = {"unknown", "nowhere", "n/a"}


def test_no_typed_value_is_a_sentinel() -> None:
    found = [
        (path.relative_to(ROOT).as_posix(), node.lineno)
        for path in SOURCES
        for node in nodes_of(path)
        for value in (
            [one.value for one in node.keywords]
            if isinstance(node, ast.Call)
            else [node.value]
            if isinstance(node, ast.AnnAssign)
            else node.comparators
            if isinstance(node, ast.Compare)
            else []
        )
        if isinstance(value, ast.Constant) and value.value in SENTINELS
    ]
    assert found == []


# One name, one class.

COMPONENT_NAMES = {"PatchedImage"}
"""Names of components that the SDK uses too, for what is made: the name of a class is that of the type in programs."""


def test_no_two_classes_have_one_name() -> None:
    names = [
        node.name
        for path in SOURCES
        for node in nodes_of(path)[0].body  # type: ignore[attr-defined]
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert sorted(names) == sorted([*set(names), *COMPONENT_NAMES])


# Few types describe one run between `schedule()` or a component and the engine.

RUN_TYPES = {"RunEntry", "RunRecord", "LaunchState", "Registration", "Launch", "RegistrationPlan"}
"""Index entry, record, surroundings of a launch, what it registers, a component's decision, an app's as JSON."""

READERS_OF_RUNS = {"StackState", "MarkedPlan", "_ArchivedLog", "_AppLog", "_SharedSource"}
"""A component in the stack's state; a plan with marks of its secret values; the logs of a run."""


def fields_of_classes(path: Path) -> dict[str, list[str]]:
    """Return the annotations of the fields of each class of a module."""
    classes = [node for node in nodes_of(path) if isinstance(node, ast.ClassDef)]
    return {
        node.name: [ast.unparse(item.annotation) for item in node.body if isinstance(item, ast.AnnAssign)]
        for node in classes
        if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
    }


def test_few_types_hold_a_run() -> None:
    folders = ("torchx_pulumi/runs", "torchx_pulumi/torchx_adapter", "torchx_pulumi_components", "stacks/engine")
    found = {
        name
        for path in SOURCES
        if any(folder in path.as_posix() for folder in folders)
        for name, fields in fields_of_classes(path).items()
        if any(one.startswith(("JobPlan", "RunRecord", "RunEntry", "RegistrationPlan")) for one in fields)
    }
    assert found <= RUN_TYPES | READERS_OF_RUNS


# Modules import each other in one direction, also for types and within functions.


def test_no_modules_import_each_other() -> None:
    graph = grimp.build_graph(
        "torchx_pulumi", "torchx_pulumi_components", "torchx_pulumi_stacks", "torchx_pulumi_fleet", cache_dir=None
    )
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 300
    TopologicalSorter(imports).prepare()  # names the modules of a circle in its error
