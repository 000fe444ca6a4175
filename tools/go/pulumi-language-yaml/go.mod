// The YAML language host.
module torchx-pulumi/tools/go/pulumi-language-yaml

go 1.25.8

require (
	github.com/pulumi/pulumi-yaml v1.30.0
	github.com/pulumi/pulumi/pkg/v3 v3.230.0
	github.com/pulumi/pulumi/sdk/v3 v3.230.0
)

exclude github.com/pulumi/pulumi/pkg/v3 v3.224.0
