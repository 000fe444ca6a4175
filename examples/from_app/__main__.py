"""A TorchX component run as a resource: whatever returns an AppDef will do."""

import pulumi
from torchx.components.utils import sh
from torchx_pulumi_components import VolcanoTrainingJob

config = pulumi.Config()
app = sh("echo", "hello from", "${app_id}", image=config.require("image"), num_replicas=2, cpu=1, memMB=1100)

job = VolcanoTrainingJob.from_app("hello", app, namespace=config.require("namespace"), queue="default")

pulumi.export("app_id", job.app_id)
pulumi.export("state", job.observed["state"])
