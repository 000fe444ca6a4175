// The Python language host: the last release that is in a published module.
module torchx-pulumi/tools/go/pulumi-language-python

go 1.24.0

require (
	github.com/pulumi/pulumi/sdk/v3 v3.79.0
	gopkg.in/yaml.v3 v3.0.1
)

replace golang.org/x/text => golang.org/x/text v0.3.6
