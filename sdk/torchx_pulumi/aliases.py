"""Modules that documentation and generated programs of 0.1.0 import, and where their names are now.

`torchx_pulumi` installs the finder. A module of the table is created when it is imported, and a name is resolved when
it is used, so that the table costs nothing otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

_ERRORS: Final = (
    "ClusterError", "DeployError", "ImageError", "ImageOptionError", "InvalidJobError", "JobFailedError",
    "MissingOptionError", "Problem", "RelaunchRefusedError", "TorchxPulumiError", "UnknownMountError",
)  # fmt: skip

ALIASES: Final[Mapping[str, Mapping[str, str]]] = {
    "torchx_pulumi.cluster": dict.fromkeys(("Cluster", "KubernetesCluster", "LiveCluster"), "torchx_pulumi.kube"),
    "torchx_pulumi.diagnosis": {
        "Diagnosis": "torchx_pulumi.model.status",
        "ObjectRef": "torchx_pulumi.model.status",
        "diagnose_refusal": "torchx_pulumi.schedulers.diagnosis.refusals",
    },
    "torchx_pulumi.doors": {},
    "torchx_pulumi.doors.appfile": {"read_app_file": "torchx_pulumi.inputs.appfile"},
    "torchx_pulumi.errors": dict.fromkeys(_ERRORS, "torchx_pulumi.model.errors"),
    "torchx_pulumi.fleet_reading": dict.fromkeys(("FleetRow", "read_fleet"), "torchx_pulumi.fleet.collect"),
    "torchx_pulumi.forms": {"FORMS": "torchx_pulumi.aliases"},
    "torchx_pulumi.kubeconfig": {"api_server": "torchx_pulumi.kube.kubeconfig"},
    "torchx_pulumi.options": {
        **dict.fromkeys(("Gang", "NetworkTopology", "VolcanoOptions"), "torchx_pulumi.schedulers.volcano.options"),
        **dict.fromkeys(("AppWrapperApi", "MCADOptions", "PodGroupApi"), "torchx_pulumi.schedulers.appwrapper.options"),
    },
}
"""Module of 0.1.0 to its names, and the module that has each name now."""


class AliasFinder:
    """Finder and loader of the modules of the table."""

    @staticmethod
    def find_spec(
        name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of the table. None: it is not in it."""
        if name not in ALIASES:
            return None
        is_package = any(other.startswith(f"{name}.") for other in ALIASES)
        return ModuleSpec(name, AliasFinder, is_package=is_package)  # type: ignore[arg-type]  # has what a loader needs

    @staticmethod
    def create_module(_spec: ModuleSpec) -> None:
        """Have a plain module created."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Let a module resolve its names when they are used."""
        names = ALIASES[module.__name__]

        def find(name: str) -> Any:
            if name not in names:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            return getattr(import_module(names[name]), name)

        module.__dict__.update(__getattr__=find, __all__=sorted(names))


def install() -> None:
    """Add the finder to the import system, once, before the one for paths.

    In a checkout that had an earlier release, a folder with compiled files only would be imported as a namespace.
    """
    if AliasFinder not in sys.meta_path:
        sys.meta_path.insert(0, AliasFinder)


def __getattr__(name: str) -> Any:
    if name == "FORMS":
        # Scheduler to the option that chooses, and its values to their variants, the default first.
        from torchx_pulumi.schedulers import find_backend, scheduler_names

        backends = map(find_backend, scheduler_names())
        return {backend.name: (backend.variant_option, backend.variants) for backend in backends}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
