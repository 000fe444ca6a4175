# Sourced in an empty folder: go.mod for a program that uses Volcano's own packages.
cat > go.mod <<'END'
module findings

go 1.25.0

require (
	k8s.io/api v0.35.3
	k8s.io/apimachinery v0.35.3
	k8s.io/client-go v0.35.3
	volcano.sh/apis v1.15.1
	volcano.sh/volcano v1.15.1
)

replace volcano.sh/apis => ./apis
END
# Kubernetes' own module asks for these in version 0.0.0.
for module in api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider cluster-bootstrap \
    code-generator component-base component-helpers controller-manager cri-api cri-client csi-translation-lib \
    dynamic-resource-allocation endpointslice externaljwt kms kube-aggregator kube-controller-manager kube-proxy \
    kube-scheduler kubectl kubelet metrics mount-utils pod-security-admission sample-apiserver sample-cli-plugin \
    sample-controller; do
    echo "replace k8s.io/$module => k8s.io/$module v0.35.3"
done >> go.mod
export GOFLAGS="-mod=mod -trimpath"

# volcano.sh/apis 1.15.1 cannot be had as a module. Volcano 1.15.1 compiles with 1.14.0 and one constant more, the name of a
# scheduling gate that none of the programs here uses.
apis=$(cd / && go mod download -json volcano.sh/apis@v1.14.0 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
cp -r "$apis" apis && chmod -R u+w apis
cat > apis/pkg/apis/scheduling/v1beta1/gate.go <<'END'
package v1beta1

const QueueAllocationGateKey = "scheduling.volcano.sh/queue-allocation-gate"
END
