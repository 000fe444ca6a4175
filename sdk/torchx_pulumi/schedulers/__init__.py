"""The ways of making a run: which there are, and how each is looked at and read."""

from torchx_pulumi.schedulers.protocol import Form, ObservedObjects, asked
from torchx_pulumi.schedulers.variants import (
    FORMS,
    choice_of,
    choice_of_run,
    chooser,
    form_of,
    form_of_run,
    pods_of_run,
)

__all__ = [
    "FORMS",
    "Form",
    "ObservedObjects",
    "asked",
    "choice_of",
    "choice_of_run",
    "chooser",
    "form_of",
    "form_of_run",
    "pods_of_run",
]
