"""A Docker daemon in memory: what it is asked to build, tag and push, and what goes wrong on purpose."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any


class FakeDocker:
    """Stands where docker-py's client stands."""

    def __init__(self) -> None:
        self.images: dict[str, dict[str, Any]] = {}
        self.remote: dict[str, str] = {}
        """What can be pulled: name to digest."""
        self.built: list[dict[str, Any]] = []
        self.pulled: list[str] = []
        self.pulled_for: list[str] = []
        """Platforms of what was pulled."""
        self.cached_for: str | None = None
        """Platform of what is in the build cache."""
        self.pull_errors: list[str] = []
        self.pushed: list[str] = []
        self.build_events: list[dict[str, Any]] = [{"stream": "Step 1/1 : FROM $IMAGE\n"}]
        self.push_events: list[list[dict[str, Any]]] = []
        self.api = SimpleNamespace(
            inspect_image=self._inspect, build=self._build, tag=self._tag, push=self._push, pull=self._pull
        )

    def close(self) -> None:
        """Nothing is open."""

    def _inspect(self, name: str) -> dict[str, Any]:
        from docker.errors import ImageNotFound

        if name not in self.images:
            raise ImageNotFound(f"no such image: {name}")
        return self.images[name]

    def _build(self, fileobj: Iterator[bytes], **given: Any) -> Iterator[dict[str, Any]]:
        with tarfile.open(fileobj=io.BytesIO(b"".join(fileobj))) as tar:
            names = tar.getnames()
        self.built.append({**given, "names": names})
        yield from self.build_events
        if not any("error" in event for event in self.build_events):
            image_id = f"sha256:{len(self.built):064d}"
            made = {"Id": image_id, "Config": {"Labels": given["labels"]}, "RepoDigests": []}
            # As the real one: what begins from scratch comes from its cache, whatever the platform is.
            cached = self.cached_for and not given["nocache"]
            system, processor = (self.cached_for if cached else given["platform"]).split("/")
            self.images[image_id] = {**made, "Os": system, "Architecture": processor}
            yield {"aux": {"ID": image_id}}

    def _tag(self, image: str, repository: str, tag: str, force: bool = False) -> None:
        self.images[f"{repository}:{tag}"] = self.images[image]

    def _push(self, repository: str, tag: str, **_: Any) -> Iterator[dict[str, Any]]:
        self.pushed.append(f"{repository}:{tag}")
        yield from self.push_events.pop(0) if self.push_events else [{"aux": {"Digest": f"sha256:{'e' * 64}"}}]

    def _pull(self, name: str, tag: str, *, platform: str, **_: Any) -> Iterator[dict[str, Any]]:
        self.pulled_for.append(platform)
        whole = f"{name}@{tag}" if tag.startswith("sha256:") else f"{name}:{tag}"
        self.pulled.append(whole)
        if self.pull_errors:
            yield {"error": self.pull_errors.pop(0)}
            return
        if whole not in self.remote:
            yield {"error": f"manifest for {whole} not found"}
            return
        self.images[whole] = {
            "Id": "sha256:" + "b" * 64,
            "RepoDigests": [f"{name}@{self.remote[whole]}"],
            "Os": platform.split("/")[0],
            "Architecture": platform.split("/")[1],
        }
        yield {"status": "Pull complete", "id": "layer"}
