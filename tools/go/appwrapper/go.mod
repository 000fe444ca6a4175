// The AppWrapper operator, which deploys AppWrappers of version v1beta2.
module torchx-pulumi/tools/go/appwrapper

go 1.24.0

require github.com/project-codeflare/appwrapper v1.2.0
