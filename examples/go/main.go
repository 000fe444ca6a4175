// A source folder as a layer of an image, a job of Volcano and a job of MCAD that run it.
package main

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/config"
	"github.com/torchx-pulumi/torchx-pulumi/sdk/go/torchx"
)

func main() {
	pulumi.Run(func(ctx *pulumi.Context) error {
		conf := config.New(ctx, "")
		namespace := pulumi.String(conf.Require("namespace"))

		// The folder becomes one layer on the base image. Preview has its digest, `up` pushes it.
		source, err := torchx.NewPatchedImage(ctx, "source", &torchx.PatchedImageArgs{
			Base:       pulumi.String(conf.Require("image")),
			Workspace:  "src",
			Repository: pulumi.String(conf.Require("repository")),
		})
		if err != nil {
			return err
		}

		role := func(name string, replicas int, words ...string) torchx.RoleArgs {
			return torchx.RoleArgs{
				Name:        name,
				Image:       source.Reference,
				Entrypoint:  pulumi.String("sh"),
				Args:        pulumi.ToStringArray(words),
				NumReplicas: pulumi.Int(replicas),
				Env: map[string]pulumi.StringInput{
					"LEARNING_RATE": pulumi.String(conf.Require("learningRate")),
					"TOKEN":         conf.RequireSecret("token"),
				},
				Resource: &torchx.ResourceArgs{Cpu: pulumi.Float64(0.2), MemoryMb: pulumi.Int(1100)},
			}
		}

		train, err := torchx.NewVolcanoTrainingJob(ctx, "train", &torchx.VolcanoTrainingJobArgs{
			Namespace: namespace,
			Queue:     pulumi.String("default"),
			Roles:     []torchx.RoleArgs{role("trainer", 2, "train.sh", "${replica_id}", "${app_id}")},
		})
		if err != nil {
			return err
		}
		evaluate, err := torchx.NewMCADTrainingJob(ctx, "evaluate", &torchx.MCADTrainingJobArgs{
			Namespace: namespace,
			Roles:     []torchx.RoleArgs{role("evaluator", 1, "evaluate.sh")},
		})
		if err != nil {
			return err
		}

		ctx.Export("image", source.Reference)
		ctx.Export("appId", train.AppId)
		ctx.Export("replicas", train.PodNames.ApplyT(func(names []string) int { return len(names) }))
		ctx.Export("state", train.Observed.State())
		ctx.Export("memoryMb", train.Declared.ResourcesTotal().MemoryMb())
		ctx.Export("evaluation", evaluate.AppId)
		return nil
	})
}
