// Moves images between tar files and registries without a daemon.
module torchx-pulumi/tools/go/crane

go 1.25.0

require github.com/google/go-containerregistry v0.22.1

