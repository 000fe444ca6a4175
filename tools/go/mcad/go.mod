// MCAD, which dispatches AppWrappers of version v1beta1.
module torchx-pulumi/tools/go/mcad

go 1.24.0

require github.com/project-codeflare/multi-cluster-app-dispatcher v1.40.0

replace sigs.k8s.io/custom-metrics-apiserver => sigs.k8s.io/custom-metrics-apiserver v1.25.1-0.20230306170449-63d8c93851f3
