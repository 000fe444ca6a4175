"""The table of parts: what each one is, where it comes from, how long it takes.

Only data lives here; its types are in `part`, and the versions in the sdk's table, which a test compares with go.mod.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from torchx_pulumi.model.versions import VERSIONS

from tools.bootstrap.debian_parts import DEBIAN_PARTS
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.part import (
    AddedFile,
    GoSource,
    GoTarget,
    Installed,
    ModuleFile,
    OfficialSource,
    Part,
)

REPOSITORY: Final = Path(__file__).resolve().parents[2]
"""Root of the checkout."""

GO_FAMILIES: Final = REPOSITORY / "tools" / "go"
"""One folder with a Go module for each family of parts."""

_PULUMI: Final = VERSIONS["pulumi"].tested
_HOST: Final = VERSIONS["pulumi-language-python"].tested
_YAML: Final = VERSIONS["pulumi-language-yaml"].tested
_KUBERNETES: Final = VERSIONS["kubernetes"].tested
_MAJOR, _MINOR = VERSIONS["kubernetes"].newest
_PULUMI_STAMP: Final = "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"
_KUBERNETES_STAMPS: Final = (
    f"k8s.io/component-base/version.gitVersion=v{_KUBERNETES}",
    f"k8s.io/component-base/version.gitMajor={_MAJOR}",
    f"k8s.io/component-base/version.gitMinor={_MINOR}",
)


_ARM: Final = (("aarch64", "arm64"), ("arm64", "arm64"))


def _official_pulumi(name: str, *executables: str) -> Part:
    return Part(
        name=name,
        version=_PULUMI,
        expected_s=30,
        source=OfficialSource(
            archive_url=f"https://get.pulumi.com/releases/sdk/pulumi-v{_PULUMI}-{{system}}-{{processor}}.tar.gz",
            checksums_url=(
                f"https://github.com/pulumi/pulumi/releases/download/v{_PULUMI}/pulumi-{_PULUMI}-checksums.txt"
            ),
            processors=(("x86_64", "x64"), ("amd64", "x64"), *_ARM),
            executables=executables,
        ),
    )


def _language(name: str, package: str) -> Part:
    host, module, version = f"pulumi-language-{name}", "github.com/pulumi/pulumi/sdk/v3", "3.66.0"
    target = GoTarget(executable=host, package=f"{module}/{package}", stamps=(f"{_PULUMI_STAMP}=v{version}",))
    return Part(
        name=host,
        version=version,
        expected_s=30,
        source=GoSource(folder=GO_FAMILIES / "pulumi-languages", module=module, targets=(target,)),
        official=_official_pulumi(host, host),
        installed=Installed(folders=("{pulumi_home}/bin",)),
    )


def _official_kubernetes_provider() -> Part:
    version = VERSIONS["kubernetes-provider"].tested
    release = f"https://github.com/pulumi/pulumi-kubernetes/releases/download/v{version}"
    archive = f"pulumi-resource-kubernetes-v{version}-{{system}}-{{processor}}.tar.gz"
    return Part(
        name="kubernetes-provider",
        version=version,
        expected_s=30,
        source=OfficialSource(
            archive_url=f"https://get.pulumi.com/releases/plugins/{archive}",
            checksums_url=f"{release}/pulumi-kubernetes_{version}_checksums.txt",
            processors=(("x86_64", "amd64"), ("amd64", "amd64"), *_ARM),
            executables=("pulumi-resource-kubernetes",),
        ),
    )


def _kubernetes(executable: str, expected_s: int) -> Part:
    package = f"k8s.io/kubernetes/cmd/{executable}"
    target = GoTarget(executable=executable, package=package, stamps=_KUBERNETES_STAMPS)
    return Part(
        name=executable,
        version=_KUBERNETES,
        expected_s=expected_s,
        source=GoSource(folder=GO_FAMILIES / "kubernetes", module="k8s.io/kubernetes", targets=(target,)),
        installed=Installed(probe=("--version",), at_least=(_MAJOR, _MINOR), below=(_MAJOR, _MINOR + 1)),
    )


def _volcano_file(pattern: str, to: str) -> ModuleFile:
    return ModuleFile(module="volcano.sh/volcano", pattern=pattern, to=to)


def _kwok_stage(folder: str) -> ModuleFile:
    pattern = f"kustomize/stage/{folder}/*-*.yaml"
    return ModuleFile(module="sigs.k8s.io/kwok", pattern=pattern, to=f"share/stage/{folder}")


_CODEFLARE: Final = "github.com/project-codeflare"


def _controller(
    name: str, module: str, target: tuple[str, str], expected_s: int, *, config: str = "config", webhooks: bool = True
) -> Part:
    """Return a controller of custom resources. The manifests of its module are in the folder `config`."""
    executable, package = target
    definitions = ModuleFile(module=module, pattern=f"{config}/crd/bases/*.yaml", to="share/crd")
    hooks = ModuleFile(module=module, pattern=f"{config}/webhook/manifests.yaml", to="share")
    return Part(
        name=name,
        version=VERSIONS[name].tested,
        expected_s=expected_s,
        source=GoSource(
            folder=GO_FAMILIES / name,
            module=module,
            targets=(GoTarget(executable=executable, package=package),),
            files=(definitions, hooks) if webhooks else (definitions,),
        ),
    )


def _own_main(name: str, module: str, expected_s: int, note: str = "") -> Part:
    """Return a part whose main package is in its folder of `GO_FAMILIES`, over a module that does the work."""
    return Part(
        name=name,
        version=VERSIONS[name].tested,
        expected_s=expected_s,
        source=GoSource(folder=GO_FAMILIES / name, module=module, targets=(GoTarget(executable=name, package="."),)),
        note=note,
    )


PARTS: Final[tuple[Part, ...]] = (
    Part(
        name="pulumi",
        version=_PULUMI,
        expected_s=200,
        source=GoSource(
            folder=GO_FAMILIES / "pulumi-cli",
            module="github.com/pulumi/pulumi/pkg/v3",
            targets=(
                GoTarget(
                    executable="pulumi",
                    package="github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
                    # The Automation API refuses a CLI that does not know its version.
                    stamps=(f"{_PULUMI_STAMP}=v{_PULUMI}",),
                ),
            ),
        ),
        official=_official_pulumi("pulumi", "pulumi"),
        installed=Installed(
            probe=("version",),
            at_least=VERSIONS["pulumi"].oldest,
            folders=("{pulumi_home}/bin",),
            variable="TORCHX_PULUMI_CLI",
        ),
    ),
    Part(
        name="pulumi-language-python",
        version=_HOST,
        expected_s=20,
        source=GoSource(
            folder=GO_FAMILIES / "pulumi-language-python",
            module="github.com/pulumi/pulumi/sdk/v3",
            targets=(
                GoTarget(executable="pulumi-language-python", package="."),
                GoTarget(
                    executable="pulumi-language-python-host",
                    package="github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python",
                    stamps=(f"{_PULUMI_STAMP}=v{_HOST}",),
                ),
            ),
            # The scripts are of the CLI's own release: they are what the Python SDK of today is tested with.
            files=tuple(
                ModuleFile(
                    module="github.com/pulumi/pulumi/sdk/v3",
                    family="pulumi-cli",
                    version=f"v{_PULUMI}",
                    pattern=script,
                    to="bin",
                )
                for script in ("python/cmd/pulumi-language-python-exec", "python/dist/pulumi-resource-pulumi-python")
            ),
        ),
        official=_official_pulumi(
            "pulumi-language-python",
            "pulumi-language-python",
            "pulumi-language-python-exec",
            "pulumi-resource-pulumi-python",
        ),
        installed=Installed(folders=("{pulumi_home}/bin",)),
    ),
    Part(
        name="pulumi-language-yaml",
        version=_YAML,
        expected_s=60,
        source=GoSource(
            folder=GO_FAMILIES / "pulumi-language-yaml",
            module="github.com/pulumi/pulumi-yaml",
            targets=(
                GoTarget(
                    executable="pulumi-language-yaml",
                    package="github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml",
                    stamps=(f"github.com/pulumi/pulumi-yaml/pkg/version.Version=v{_YAML}",),
                ),
            ),
        ),
        official=_official_pulumi("pulumi-language-yaml", "pulumi-language-yaml"),
        installed=Installed(folders=("{pulumi_home}/bin",)),
    ),
    _language("nodejs", "nodejs/cmd/pulumi-language-nodejs"),
    _language("go", "go/pulumi-language-go"),
    _own_main(
        "sdkgen", "github.com/pulumi/pulumi/pkg/v3", 15, "generates SDKs, which hosts that are built here cannot"
    ),
    Part(
        name="kubernetes-provider",
        version="stand-in",
        expected_s=60,
        source=GoSource(
            folder=REPOSITORY / "tools" / "kubernetes_provider",
            targets=(GoTarget(executable="pulumi-resource-kubernetes", package="."),),
        ),
        official=_official_kubernetes_provider(),
        installed=Installed(
            at_least=VERSIONS["kubernetes-provider"].oldest,
            folders=("{pulumi_home}/plugins/resource-kubernetes-v*",),
            variable="TORCHX_PULUMI_KUBERNETES_PROVIDER",
        ),
        note="not the official provider",
    ),
    _kubernetes("kube-apiserver", 200),
    _kubernetes("kube-controller-manager", 60),
    Part(
        name="volcano",
        version=VERSIONS["volcano"].tested,
        expected_s=50,
        source=GoSource(
            folder=GO_FAMILIES / "kubernetes",
            module="volcano.sh/volcano",
            targets=tuple(
                GoTarget(
                    executable=f"vc-{command}",
                    package=f"volcano.sh/volcano/cmd/{command}",
                    stamps=(f"volcano.sh/volcano/pkg/version.Version=v{VERSIONS['volcano'].tested}",),
                )
                for command in ("scheduler", "controller-manager", "webhook-manager")
            ),
            files=(
                _volcano_file("config/crd/volcano/bases/*.yaml", "share/crd"),
                _volcano_file("config/crd/jobflow/bases/*.yaml", "share/crd"),
                _volcano_file("installer/volcano-development.yaml", "share"),
                _volcano_file("installer/helm/chart/volcano/config/volcano-scheduler.conf", "share"),
                _volcano_file("installer/helm/chart/volcano/config/volcano-admission.conf", "share"),
            ),
            added=AddedFile(
                module="volcano.sh/apis",
                file="volcano-apis/queue_allocation_gate.go",
                to="pkg/apis/scheduling/v1beta1",
            ),
        ),
    ),
    _kubernetes("kubelet", 30),
    _kubernetes("kube-scheduler", 15),
    Part(
        name="kwok",
        version=VERSIONS["kwok"].tested,
        expected_s=60,
        source=GoSource(
            folder=GO_FAMILIES / "kwok",
            module="sigs.k8s.io/kwok",
            targets=(GoTarget(executable="kwok", package="sigs.k8s.io/kwok/cmd/kwok"),),
            files=tuple(_kwok_stage(folder) for folder in ("node/fast", "node/heartbeat-with-lease", "pod/fast")),
        ),
    ),
    Part(
        name="scheduler-plugins",
        version=VERSIONS["scheduler-plugins"].tested,
        expected_s=60,
        source=GoSource(
            folder=GO_FAMILIES / "scheduler-plugins",
            module="sigs.k8s.io/scheduler-plugins",
            targets=(GoTarget(executable="coscheduler", package="sigs.k8s.io/scheduler-plugins/cmd/scheduler"),),
            files=(
                ModuleFile(
                    module="sigs.k8s.io/scheduler-plugins", pattern="config/crd/bases/*_podgroups.yaml", to="share/crd"
                ),
            ),
        ),
    ),
    _controller(
        "mcad",
        f"{_CODEFLARE}/multi-cluster-app-dispatcher",
        ("mcad-controller", f"{_CODEFLARE}/multi-cluster-app-dispatcher/cmd/kar-controllers"),
        80,
        webhooks=False,
    ),
    _controller("appwrapper", f"{_CODEFLARE}/appwrapper", ("appwrapper-operator", "."), 60),
    _controller(
        "kueue", "sigs.k8s.io/kueue", ("kueue", "sigs.k8s.io/kueue/cmd/kueue"), 240, config="config/components"
    ),
    Part(
        name="coredns",
        version=VERSIONS["coredns"].tested,
        expected_s=45,
        source=GoSource(
            folder=GO_FAMILIES / "coredns",
            module="github.com/coredns/coredns",
            targets=(GoTarget(executable="coredns", package="."),),
        ),
        installed=Installed(probe=("-version",), at_least=(1, 11), below=(2,)),
    ),
    Part(
        name="crane",
        version=VERSIONS["crane"].tested,
        expected_s=15,
        source=GoSource(
            folder=GO_FAMILIES / "crane",
            module="github.com/google/go-containerregistry",
            targets=(
                GoTarget(
                    executable="crane",
                    package="github.com/google/go-containerregistry/cmd/crane",
                    stamps=(
                        f"github.com/google/go-containerregistry/cmd/crane/cmd.Version=v{VERSIONS['crane'].tested}",
                    ),
                ),
            ),
        ),
        installed=Installed(),
    ),
    Part(
        name="actionlint",
        version=VERSIONS["actionlint"].tested,
        expected_s=10,
        source=GoSource(
            folder=GO_FAMILIES / "actionlint",
            module="github.com/rhysd/actionlint",
            targets=(GoTarget(executable="actionlint", package="github.com/rhysd/actionlint/cmd/actionlint"),),
        ),
        installed=Installed(),
    ),
    _own_main("distribution", "github.com/distribution/distribution/v3", 180, "a second registry for tests"),
    Part(
        name="versitygw",
        version=VERSIONS["versitygw"].tested,
        expected_s=90,
        source=GoSource(
            folder=GO_FAMILIES / "versitygw",
            module="github.com/versity/versitygw",
            targets=(
                GoTarget(
                    executable="versitygw",
                    package="github.com/versity/versitygw/cmd/versitygw",
                    stamps=(f"main.Version=v{VERSIONS['versitygw'].tested}",),
                ),
            ),
        ),
        installed=Installed(),
    ),
    _own_main("patternmatcher", "github.com/moby/patternmatcher", 5),
    *DEBIAN_PARTS,
)
"""Every part, in the order in which missing ones are best built: what others share is built first."""


def part_named(name: str) -> Part:
    """Find a part by its name.

    Raises:
        BootstrapError: There is none of that name; the message lists those there are.
    """
    for part in PARTS:
        if part.name == name:
            return part
    raise BootstrapError(f"no part is called {name!r}; there are: {', '.join(part.name for part in PARTS)}")
