// A training job, run once by Volcano. Change `args` to what your image runs.

import * as pulumi from "@pulumi/pulumi";
import * as torchx from "@torchx-pulumi/torchx";

const config = new pulumi.Config();

const job = new torchx.VolcanoTrainingJob("train", {
    namespace: config.require("namespace"),
    queue: config.require("queue"),
    roles: [
        {
            name: "trainer",
            image: config.require("image"),
            entrypoint: "sh",
            // TorchX's macros, in plain quotes: number of the replica, name of the job.
            args: ["-c", "echo replica ${replica_id} of ${app_id}"],
            numReplicas: config.requireNumber("replicas"),
            resource: { cpu: 0.5, gpu: 0, memoryMb: 1500 },
        },
    ],
});

export const app_handle = job.appHandle;
export const state = job.observed.state;
