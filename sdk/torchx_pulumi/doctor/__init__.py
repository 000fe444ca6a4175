"""Is everything there that a launch needs: on this machine, in the cluster. Looks only; each check says what to do."""

from torchx_pulumi.doctor.examining import Seams, examine
from torchx_pulumi.doctor.report import finding_values, to_lines
from torchx_pulumi.model.finding import Asked, Finding, Verdict

__all__ = ["Asked", "Finding", "Seams", "Verdict", "examine", "finding_values", "to_lines"]
