import * as pulumi from "@pulumi/pulumi";
import * as torchx from "@torchx-pulumi/torchx";

const config = new pulumi.Config();
const namespace = config.require("namespace");

// The folder becomes one layer on the base image. Preview has its digest, `up` pushes it.
const source = new torchx.PatchedImage("source", {
    base: config.require("image"),
    workspace: "src",
    repository: config.require("repository"),
});

const shared = {
    image: source.reference,
    entrypoint: "sh",
    env: { LEARNING_RATE: config.require("learningRate"), TOKEN: config.requireSecret("token") },
    resource: { cpu: 0.2, memoryMb: 1100 },
};

const train = new torchx.VolcanoTrainingJob("train", {
    namespace,
    queue: "default",
    roles: [{ ...shared, name: "trainer", args: ["train.sh", "${replica_id}", "${app_id}"], numReplicas: 2 }],
});

const evaluate = new torchx.MCADTrainingJob("evaluate", {
    namespace,
    roles: [{ ...shared, name: "evaluator", args: ["evaluate.sh"] }],
});

export const image: pulumi.Output<string> = source.reference;
export const appId: pulumi.Output<string> = train.appId;
export const replicas: pulumi.Output<number> = train.podNames.apply(names => names.length);
export const state: pulumi.Output<string> = train.observed.state;
export const memoryMb: pulumi.Output<number> = train.declared.resourcesTotal.memoryMb;
export const evaluation: pulumi.Output<string> = evaluate.appId;
