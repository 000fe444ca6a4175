// What Docker makes of a .dockerignore file, to compare our own reading with.
module torchx-pulumi/tools/go/patternmatcher

go 1.24.0

require github.com/moby/patternmatcher v0.6.1
