// Checks the workflows in .github.
module torchx-pulumi/tools/go/actionlint

go 1.25.0

require github.com/rhysd/actionlint v1.7.12
