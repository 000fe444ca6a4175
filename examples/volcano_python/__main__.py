"""Two replicas that find each other by name, described with the component's own arguments."""

import pulumi
from torchx_pulumi_components import VolcanoTrainingJob

config = pulumi.Config()
GREETING = """
echo "replica ${replica_id} of ${app_id} on $(hostname)"
until nslookup "$${VC_TRAINER_0_HOSTS}.$${NAMESPACE}.svc.cluster.local" >/dev/null; do sleep 0.2; done
echo "rank 0 is at $${VC_TRAINER_0_HOSTS}"
sleep 20  # a pod that has ended has no name any more: stay until the other has looked
"""

job = VolcanoTrainingJob(
    "greeting",
    {
        "namespace": config.require("namespace"),
        "queue": "default",
        "roles": [
            {
                "name": "trainer",
                "image": config.require("image"),
                "entrypoint": "sh",
                "args": ["-c", GREETING],
                "env": {"NAMESPACE": "[FIELD_PATH]metadata.namespace"},
                "num_replicas": 2,
                "resource": {"cpu": 0.2, "memory_mb": 1100},
            }
        ],
    },
)

pulumi.export("app_id", job.app_id)
pulumi.export("rank0_host", job.rank0_host)
pulumi.export("state", job.observed["state"])
