"""PatchedImage: a workspace on a base image as a component, for programs in YAML and other languages.

In Python, `images.patched_image` does the same without a resource.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import pulumi
from torchx_pulumi.images import ImagePlan, known_digests, plan_patch
from torchx_pulumi.model.errors import ImageError, TorchxPulumiError
from torchx_pulumi.model.image_options import ImageRequest
from torchx_pulumi.planning.typed_reader import FieldValues, uncovered

from torchx_pulumi_components.arg_values import ArgumentReader, argument_fields
from torchx_pulumi_components.constructor_call import CheckedCall
from torchx_pulumi_components.images import build_in_up
from torchx_pulumi_components.input_resolution import Leaves, copied
from torchx_pulumi_components.output_texts import texts_of_outputs
from torchx_pulumi_components.patched_image_args import PatchedImageArgs
from torchx_pulumi_components.program_jobs import JobRefusedError, program_jobs
from torchx_pulumi_components.training_job import output_after

TOKEN = "torchx:index:PatchedImage"  # noqa: S105 - a type


class PatchedImage(CheckedCall):
    """A workspace on a base image, named by its content. Preview has the name; `up` builds and pushes what is missing.

    Nothing in the cluster or in a registry is removed with it.
    """

    reference: pulumi.Output[str]
    """Name of the image, for the `image` of roles: with its digest after the tag if the builder is `registry`."""
    digest: pulumi.Output[str]
    """Digest of the image in its registry; without a repository, its id on the daemon. Not known in a preview of an
    image that the builder `docker` has not built."""

    def __init__(self, name: str, args: PatchedImageArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Plan the image and, in `up`, build and push it if its registry does not have it.

        The work begins after the constructor has returned. What uses an output waits for the image. The program fails
        at its end if the arguments are wrong, or the image cannot be planned, built or pushed.

        Args:
            name: Name of the component.
            args: What to build from.
            opts: Resource options of the component.
        """
        planned: asyncio.Future[None] = asyncio.Future()
        done: asyncio.Future[None] = asyncio.Future()
        outputs: dict[str, Any] = {}
        # An image that cannot be planned is not registered, like a refused job.
        super().__init__(TOKEN, name, {}, opts, package_ref=_ended(planned))
        self.reference = output_after(self, done, lambda: outputs["reference"])
        self.digest = output_after(self, done, lambda: outputs["digest"])
        task = asyncio.ensure_future(self._make(name, copied(args), outputs, planned, done))
        program_jobs().add(self, task, done)

    async def _make(
        self,
        name: str,
        given: Mapping[str, Any],
        outputs: dict[str, Any],
        planned: "asyncio.Future[None]",
        done: "asyncio.Future[None]",
    ) -> None:
        """Plan and build; end the two futures, with an error if the image is refused."""
        leaves, jobs = Leaves(), program_jobs()
        try:
            resolved = await leaves.resolve(given)
            await jobs.wait_for(self, leaves.resources)
            request = _read(resolved)
            plan = None if leaves.unknown_places else await asyncio.to_thread(lambda: plan_patch(**asdict(request)))
            planned.set_result(None)
            outputs |= dict.fromkeys(("reference", "digest"), pulumi.output.UNKNOWN)
            if plan is not None:
                outputs |= await asyncio.to_thread(_build, plan, leaves.hide)
            if not leaves.secret_arguments.isdisjoint(("base", "repository")):
                # Without a repository the image is named after its base.
                outputs["reference"] = pulumi.Output.secret(outputs["reference"])
            self.register_outputs(dict(outputs))
        except Exception as error:
            refused: Exception = error
            if isinstance(error, (TorchxPulumiError, pulumi.RunError)):
                reason = str(error)
                if isinstance(error, JobRefusedError):
                    reason = f"nothing was built, because it depends on {error.what}"
                message = leaves.hide(f"image {name!r}: {reason}")
                jobs.refuse(self, message)
                refused = JobRefusedError(message, f"image {name!r}")
            for future in (planned, done):
                if not future.done():
                    future.set_exception(refused)
                    # Mark the exception as retrieved, or asyncio logs it.
                    future.exception()
            if refused is error:
                raise
        else:
            done.set_result(None)


async def _ended(future: "asyncio.Future[None]") -> None:
    await asyncio.shield(future)


def _read(resolved: Mapping[str, Any]) -> ImageRequest:
    """Return typed arguments.

    Raises:
        ImageError: Arguments are of other types; all problems at once.
    """
    reader = ArgumentReader()
    given = reader.arguments(resolved, argument_fields(ImageRequest)) or {}
    places = given.get("workspace")
    if isinstance(places, Mapping):
        # YAML reads a key without a value as null.
        given["workspace"] = reader.mapping(str, {place: to or "" for place, to in places.items()}, "workspace")
    elif "workspace" in given:
        given["workspace"] = reader.text(places, "workspace")
    request = reader.read(ImageRequest, FieldValues(given), "")
    unread = [*texts_of_outputs(resolved)]
    problems = [*unread, *uncovered(reader.problems, unread)]
    if problems:
        lines = "".join(f"\n  - {problem}" for problem in problems)
        raise ImageError(f"the arguments have problems:{lines}")
    return request


def _build(plan: ImagePlan, hide: Callable[[str], str]) -> dict[str, Any]:
    """Return the outputs of an image; in `up` build and push it if it is missing."""
    digests = build_in_up([plan], hide)
    if pulumi.runtime.is_dry_run() and not digests and plan.repository is not None:
        digests = known_digests([plan.reference])
    return {"reference": plan.pod_reference, "digest": digests.get(plan.pod_reference, pulumi.output.UNKNOWN)}
