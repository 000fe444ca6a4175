"""Bringing what a stack says of its app up to date, without running its program."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torchx_pulumi.outputs.building import same

from torchx_pulumi_stacks.automation.app_stack import AppStack
from torchx_pulumi_stacks.automation.recovery import is_whole
from torchx_pulumi_stacks.automation.state_file import STACK

COMPONENTS = "torchx:index:"


def write_observed(stack: AppStack, observed: Mapping[str, Any]) -> bool:
    """Write an observation into the outputs of a stack and of its component.

    Args:
        stack: The stack.
        observed: `observed` of the stack output `torchx`.

    Returns:
        Whether it was written: not where it says the same, where the stack is gone, or where somebody works on it.

    Raises:
        DeployError: The backend refused it.
    """
    checkpoint = stack.read()
    if checkpoint is None or not is_whole(checkpoint):
        return False
    before = (checkpoint.outputs.get("torchx") or {}).get("observed")
    if before is not None and same(before, observed):
        return False
    deployment = copy.deepcopy(dict(checkpoint.deployment))
    for resource in deployment.get("resources") or []:
        outputs = resource.get("outputs") or {}
        if resource.get("type") == STACK and "torchx" in outputs:
            outputs["torchx"]["observed"] = dict(observed)
            outputs |= {"state": observed.get("state"), "reason": observed.get("reason")}
        elif str(resource.get("type")).startswith(COMPONENTS) and "observed" in outputs:
            outputs["observed"] = dict(observed)
    return stack.write(deployment)
