// A training job, run once by Volcano. Change Args to what your image runs.
package main

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/config"
	"github.com/torchx-pulumi/torchx-pulumi/sdk/go/torchx"
)

func main() {
	pulumi.Run(func(ctx *pulumi.Context) error {
		conf := config.New(ctx, "")
		job, err := torchx.NewVolcanoTrainingJob(ctx, "train", &torchx.VolcanoTrainingJobArgs{
			Namespace: pulumi.String(conf.Require("namespace")),
			Queue:     pulumi.String(conf.Require("queue")),
			Roles: []torchx.RoleArgs{{
				Name:       "trainer",
				Image:      pulumi.String(conf.Require("image")),
				Entrypoint: pulumi.String("sh"),
				// TorchX's macros: number of the replica, name of the job.
				Args:        pulumi.ToStringArray([]string{"-c", "echo replica ${replica_id} of ${app_id}"}),
				NumReplicas: pulumi.Int(conf.RequireInt("replicas")),
				Resource: &torchx.ResourceArgs{
					Cpu:      pulumi.Float64(0.5),
					Gpu:      pulumi.Int(0),
					MemoryMb: pulumi.Int(1500),
				},
			}},
		})
		if err != nil {
			return err
		}
		ctx.Export("app_handle", job.AppHandle)
		ctx.Export("state", job.Observed.State())
		return nil
	})
}
