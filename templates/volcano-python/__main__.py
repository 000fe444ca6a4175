"""A training job, run once by Volcano. Change `args` to what your image runs."""

import pulumi
from torchx_pulumi_components import VolcanoTrainingJob, export_outputs

config = pulumi.Config()

job = VolcanoTrainingJob(
    "train",
    {
        "namespace": config.require("namespace"),
        "queue": config.require("queue"),
        "roles": [
            {
                "name": "trainer",
                "image": config.require("image"),
                "entrypoint": "sh",
                # TorchX's macros: numbers of the replica, name of the job, address of rank 0.
                "args": ["-c", "echo replica ${replica_id} of ${app_id}"],
                "num_replicas": config.require_int("replicas"),
                "resource": {"cpu": 0.5, "gpu": 0, "memory_mb": 1500},
            }
        ],
    },
)

# `state`, `reason`, `log_command` and the object `torchx`, which the fleet reads.
export_outputs(job)
