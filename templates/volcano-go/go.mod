module ${PROJECT}

go 1.25

require (
	github.com/pulumi/pulumi/sdk/v3 v3.259.0
	github.com/torchx-pulumi/torchx-pulumi/sdk/go v0.2.0
)

replace github.com/torchx-pulumi/torchx-pulumi/sdk/go => ./sdks/torchx
