"""The parts that come out of Debian packages. Only data lives here; `parts` puts them beside the others."""

from __future__ import annotations

from typing import Final

from tools.bootstrap.part import DebianLink, DebianSource, Installed, Part

_LIBRARIES: Final = "{root}/usr/lib/*-linux-gnu:{root}/lib/*-linux-gnu"


def _iptables(name: str) -> DebianLink:
    return DebianLink(
        executable=name,
        path="usr/sbin/xtables-nft-multi",
        variables=(
            ("LD_LIBRARY_PATH", _LIBRARIES),
            ("XTABLES_LIBDIR", "{root}/usr/lib/*-linux-gnu/xtables"),
        ),
        arguments=(name,),
    )


DEBIAN_PARTS: Final[tuple[Part, ...]] = (
    Part(
        name="etcd",
        version="debian",
        expected_s=5,
        source=DebianSource(packages=("etcd-server",), links=(DebianLink(executable="etcd", path="usr/bin/etcd"),)),
        installed=Installed(probe=("--version",), at_least=(3, 4)),
    ),
    Part(
        name="containerd",
        version="debian",
        expected_s=10,
        source=DebianSource(
            packages=("containerd",),
            links=(
                DebianLink(executable="containerd", path="usr/bin/containerd"),
                DebianLink(executable="containerd-shim-runc-v2", path="usr/bin/containerd-shim-runc-v2"),
                DebianLink(executable="ctr", path="usr/bin/ctr"),
                DebianLink(executable="runc", path="usr/sbin/runc"),
            ),
        ),
        installed=Installed(probe=("--version",), at_least=(1, 6), below=(2,)),
    ),
    Part(
        name="cni",
        version="debian",
        expected_s=10,
        source=DebianSource(
            packages=("containernetworking-plugins",),
            links=tuple(
                DebianLink(executable=name, path=f"usr/lib/cni/{name}")
                for name in ("bridge", "host-local", "loopback", "portmap")
            ),
        ),
        installed=Installed(folders=("/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni")),
    ),
    Part(
        name="registry",
        version="debian",
        expected_s=5,
        source=DebianSource(
            packages=("docker-registry",),
            links=(DebianLink(executable="docker-registry", path="usr/bin/docker-registry"),),
        ),
        installed=Installed(),
    ),
    Part(
        name="busybox",
        version="debian",
        expected_s=5,
        source=DebianSource(
            packages=("busybox-static",), links=(DebianLink(executable="busybox", path="bin/busybox"),)
        ),
        installed=Installed(static_only=True),
    ),
    Part(
        name="dockerd",
        version="debian",
        expected_s=15,
        source=DebianSource(
            packages=("docker.io",),
            links=(
                DebianLink(
                    executable="dockerd",
                    path="usr/sbin/dockerd",
                    variables=(("LD_LIBRARY_PATH", _LIBRARIES),),
                ),
            ),
        ),
        installed=Installed(folders=("/usr/sbin", "/sbin")),
    ),
    Part(
        name="debootstrap",
        version="debian",
        expected_s=5,
        source=DebianSource(
            packages=("debootstrap",),
            links=(
                DebianLink(
                    executable="debootstrap",
                    path="usr/sbin/debootstrap",
                    variables=(
                        ("DEBOOTSTRAP_DIR", "{root}/usr/share/debootstrap"),
                        ("PATH", "{root}/usr/bin:$PATH"),
                        ("LD_LIBRARY_PATH", _LIBRARIES),
                    ),
                ),
            ),
        ),
        installed=Installed(),
    ),
    Part(
        name="iptables",
        version="debian",
        expected_s=5,
        source=DebianSource(
            packages=("iptables",),
            links=tuple(_iptables(name) for name in ("iptables", "iptables-save", "iptables-restore")),
        ),
        installed=Installed(folders=("/usr/sbin", "/sbin")),
    ),
    Part(
        name="socat",
        version="debian",
        expected_s=5,
        source=DebianSource(
            packages=("socat",),
            links=(
                DebianLink(
                    executable="socat",
                    path="usr/bin/socat",
                    variables=(("LD_LIBRARY_PATH", _LIBRARIES),),
                ),
            ),
        ),
        installed=Installed(),
    ),
    Part(
        name="python-root",
        version="debian",
        expected_s=10,
        source=DebianSource(
            packages=("python3-minimal", "libpython3-stdlib", "libstdc++6"),
            links=(DebianLink(executable="python3", path="usr/bin/python3"),),
            self_contained=True,
        ),
        note="for an image",
    ),
    Part(
        name="chromium",
        version="debian",
        expected_s=20,
        source=DebianSource(
            packages=("chromium-headless-shell",),
            unused=("x11-utils", "xdg-utils"),
            links=(
                DebianLink(
                    executable="chromium-headless-shell",
                    path="usr/lib/chromium/chromium-headless-shell",
                    variables=(
                        ("LD_LIBRARY_PATH", f"{_LIBRARIES}:{{root}}/usr/lib/*-linux-gnu/pulseaudio"),
                        # Without a font pages have no text. Fonts of the machine are found as well.
                        ("FONTCONFIG_PATH", "{root}/etc/fonts"),
                        ("XDG_DATA_HOME", "{root}/usr/share"),
                    ),
                ),
            ),
        ),
        installed=Installed(),
    ),
    Part(
        name="prometheus",
        version="debian",
        expected_s=10,
        source=DebianSource(
            packages=("prometheus",),
            links=(
                DebianLink(executable="prometheus", path="usr/bin/prometheus"),
                DebianLink(executable="promtool", path="usr/bin/promtool"),
            ),
        ),
        installed=Installed(probe=("--version",), at_least=(2, 42)),
    ),
)
"""In the order in which missing ones are best got."""
