"""Checks of the requirements of a launch on this machine and in the cluster. They change nothing."""

from torchx_pulumi.doctor.examining import DoctorClients, examine
from torchx_pulumi.doctor.report import finding_values, to_lines
from torchx_pulumi.model.finding import DoctorScope, Finding, Verdict

__all__ = ["DoctorClients", "DoctorScope", "Finding", "Verdict", "examine", "finding_values", "to_lines"]
