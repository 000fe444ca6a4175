"""Reads how a job is from its stack. Configure which: `pulumi config set job organization/torchx/dev`."""

import pulumi

job = pulumi.StackReference(pulumi.Config().require("job"))
torchx = job.require_output("torchx")

pulumi.export("state", torchx["observed"]["state"])
pulumi.export("reason", torchx["observed"]["reason"])
pulumi.export("gpus", torchx["declared"]["resources_total"]["gpu"])
pulumi.export("done", torchx["observed"]["state"].apply(lambda state: state in ("SUCCEEDED", "FAILED", "CANCELLED")))
