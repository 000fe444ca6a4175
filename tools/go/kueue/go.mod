// Kueue, which admits AppWrappers, Jobs and pods by quota.
module torchx-pulumi/tools/go/kueue

go 1.26.0

require sigs.k8s.io/kueue v0.19.2
