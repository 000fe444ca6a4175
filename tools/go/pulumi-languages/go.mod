// The Node.js and Go language hosts: the last release that has both in a published module.
module torchx-pulumi/tools/go/pulumi-languages

go 1.24.0

require github.com/pulumi/pulumi/sdk/v3 v3.66.0
