"""The error tree of the package.

    TorchxPulumiError
    + InvalidJobError (ValueError)        the job or an option is wrong; nothing was built, pushed or created
      x MissingOptionError (TypeError)    a required option is absent
      x UnknownMountError (TypeError)     a mount of an unknown kind
    + RelaunchRefusedError                a change would end an unfinished run, which was not requested
    + DeployError                         the engine or the cluster refused a change
      x RefusedError                      a webhook, the API server or the engine refused an object of a launch
      x TakenOverError                    another process has taken the app over; nothing more was changed
      x BackendAbsentError                the folder of a backend is absent; its stacks are not known
    + JobFailedError                      the job was deployed, ran, and failed
    + ImageError                          an image cannot be patched, built or pushed
      x ImageOptionError (KeyError)       image_repo is needed and not set
    + ClusterError                        the cluster cannot be reached or does not answer

A message says where, what was found, what is allowed and what to do next. `ValueError` and `TypeError` are mixed in
where TorchX's own schedulers raise them, so that callers written for those keep working.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a job or an option."""

    path: str
    """Where: a path in the user's own words, for example `roles[1].min_replicas`."""
    message: str
    """What was found, what is allowed, and what to do next."""
    rule: str = ""
    """The broken rule if callers depend on it: `mount`, `required` or `port`; else empty."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class TorchxPulumiError(Exception):
    """Root of all errors of this package."""


class InvalidJobError(TorchxPulumiError, ValueError):
    """The job cannot be planned; nothing was built, pushed or created."""

    def __init__(self, job: str | None, problems: Sequence[Problem]) -> None:
        """Take all problems. `job` is its name, or None if they are of arguments, not of a job."""
        self.job = job
        self.problems = tuple(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        super().__init__(f"{'the arguments have' if job is None else f'job {job!r} has'} {count}:\n{lines}")


class MissingOptionError(InvalidJobError, TypeError):
    """A required option is absent or not a text."""


class UnknownMountError(InvalidJobError, TypeError):
    """A mount of a kind that the renderers do not know."""


def invalid_job(job: object, problems: Sequence[Problem]) -> InvalidJobError:
    """Return the error of a job's problems, of the class that callers written for TorchX expect."""
    rules = {problem.rule for problem in problems}
    kind = UnknownMountError if "mount" in rules else MissingOptionError if "required" in rules else InvalidJobError
    return kind(job if isinstance(job, str) else "unnamed", problems)


def invalid_arguments(*problems: Problem) -> InvalidJobError:
    """Return the error of arguments of a command or a function that are not part of a job."""
    return InvalidJobError(None, problems)


class RelaunchRefusedError(TorchxPulumiError):
    """A change would kill an unfinished run, and `on_running_change` is `fail`."""


class DeployError(TorchxPulumiError):
    """The engine or the cluster refused a change."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        self.retryable = retryable
        super().__init__(message)


class RefusedError(DeployError):
    """A webhook, the API server or the engine refused an object of a launch; the message has the diagnosis."""

    def __init__(self, message: str, *, status: object) -> None:
        self.status = status
        """The `JobStatus` of the refused run: FAILED, `Refused`, with its diagnosis."""
        super().__init__(message)


class TakenOverError(DeployError):
    """Another process has taken over the app; this process stopped and changed nothing more."""


class BackendAbsentError(DeployError):
    """The folder of a backend is absent or without a backend, as if not mounted. Its stacks do not count as deleted."""


class JobFailedError(TorchxPulumiError):
    """The job was deployed, ran, and ended in a state other than SUCCEEDED, or was not there in time."""

    def __init__(self, message: str, *, status: object = None) -> None:
        self.status = status
        """The last observed `JobStatus`. None: the job is not known."""
        super().__init__(message)


DIFFERENT_CLUSTER: Final = "DifferentCluster"
"""`reason` of the error about a cluster that is not the one of the launch."""


class ClusterError(TorchxPulumiError):
    """The cluster cannot be reached or does not answer as Kubernetes does.

    `reason` is Kubernetes' own word if it gave one (`AlreadyExists`, `Forbidden`, `NotFound`), else empty.
    """

    def __init__(self, message: str, *, retryable: bool = False, reason: str = "") -> None:
        self.retryable = retryable
        self.reason = reason
        super().__init__(message)


class ImageError(TorchxPulumiError):
    """An image cannot be patched, built or pushed; nothing was created in a cluster."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        self.retryable = retryable
        super().__init__(message)


class ImageOptionError(ImageError, KeyError):
    """A patched image has to be pushed, and the option `image_repo` is not set."""

    def __str__(self) -> str:
        """Return the message; a KeyError would show it quoted."""
        return str(self.args[0])
