package object

import (
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Schema extensions of a CustomResourceDefinition are spelled with dashes in
// Kubernetes and with underscores in Pulumi's SDKs.
const (
	extensionInKubernetes = "x-kubernetes-"
	extensionInPulumi     = "x_kubernetes_"
)

// FromProperties turns properties into an object as Kubernetes knows it.
// Secrets lose their mark; unknown values stay as resource.Computed.
func FromProperties(properties resource.PropertyMap) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: properties.MapRepl(kubernetesKey, revealSecret)}
}

// ToProperties turns a Kubernetes value tree into properties, nothing secret.
func ToProperties(tree map[string]any) resource.PropertyMap {
	return resource.NewPropertyMapFromMapRepl(tree, pulumiKey, nil)
}

// HasUnknown tells whether a value that is only known after an update is
// anywhere in the tree.
func HasUnknown(value any) bool {
	switch value := value.(type) {
	case resource.Computed, *resource.Computed:
		return true
	case map[string]any:
		for _, element := range value {
			if HasUnknown(element) {
				return true
			}
		}
	case []any:
		for _, element := range value {
			if HasUnknown(element) {
				return true
			}
		}
	}
	return false
}

func revealSecret(value resource.PropertyValue) (any, bool) {
	if value.IsSecret() {
		return value.SecretValue().Element.MapRepl(kubernetesKey, revealSecret), true
	}
	if value.IsOutput() && !value.OutputValue().Known {
		return resource.Computed{Element: resource.NewStringProperty("")}, true
	}
	return nil, false
}

func kubernetesKey(key string) (string, bool) {
	rest, found := strings.CutPrefix(key, extensionInPulumi)
	if !found {
		return "", false
	}
	return extensionInKubernetes + strings.ReplaceAll(rest, "_", "-"), true
}

func pulumiKey(key string) (resource.PropertyKey, bool) {
	rest, found := strings.CutPrefix(key, extensionInKubernetes)
	if !found {
		return "", false
	}
	return resource.PropertyKey(extensionInPulumi + strings.ReplaceAll(rest, "-", "_")), true
}
