"""The real driver: stacks of apps by Pulumi's Automation API. Importing it loads neither Pulumi nor a client."""

from torchx_pulumi_stacks.engine.driver import AutomationDriver

__all__ = ["AutomationDriver"]
