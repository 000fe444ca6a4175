package object

import (
	"fmt"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// GVKFromURN reads group, version and kind from a type token such as
// "kubernetes:batch.volcano.sh/v1alpha1:Job".
func GVKFromURN(owner urn.URN) (schema.GroupVersionKind, error) {
	token := owner.Type()
	group, version, found := strings.Cut(string(token.Module().Name()), "/")
	if token.Package() != "kubernetes" || !found {
		return schema.GroupVersionKind{}, fmt.Errorf(
			"resource type %q is not \"kubernetes:<group>/<version>:<Kind>\"", token)
	}
	if group == "core" {
		group = ""
	}
	return schema.GroupVersionKind{Group: group, Version: version, Kind: string(token.Name())}, nil
}

// GVK reads group, version and kind from the object; the group "core" is the
// empty group, as in type tokens.
func GVK(obj *unstructured.Unstructured) schema.GroupVersionKind {
	gvk := obj.GroupVersionKind()
	if gvk.Group == "core" {
		gvk.Group = ""
	}
	return gvk
}

// IsBuiltin tells whether Kubernetes itself brings the kind.
func IsBuiltin(gvk schema.GroupVersionKind) bool { return scheme.Scheme.Recognizes(gvk) }

// IsCRD tells whether the object is a CustomResourceDefinition.
func IsCRD(obj *unstructured.Unstructured) bool {
	return GVK(obj).GroupKind() == schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
}

// Unserved says why the stand-in does not serve a resource type, "" when it
// does: what is no single object of the cluster is left to the official
// provider. The kind is the one among the inputs.
func Unserved(owner urn.URN, kind string) string {
	module, name := string(owner.Type().Module().Name()), string(owner.Type().Name())
	family, _, _ := strings.Cut(module, "/")
	switch family {
	case "helm.sh", "helm":
		return "Helm charts and releases"
	case "kustomize":
		return "kustomizations"
	case "yaml":
		return "YAML files and groups"
	}
	if strings.HasSuffix(name, "Patch") && kind != name {
		return "Patch resources"
	}
	if strings.HasSuffix(name, "List") && isBuiltinGroup(family) {
		return "List resources"
	}
	return ""
}

func isBuiltinGroup(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// clusterScoped are built-in kinds without namespaces, for when no API server
// can be asked.
var clusterScoped = map[string]bool{
	"APIService": true, "CSIDriver": true, "CSINode": true, "CertificateSigningRequest": true, "ClusterRole": true,
	"ClusterRoleBinding": true, "ComponentStatus": true, "CustomResourceDefinition": true, "FlowSchema": true,
	"IngressClass": true, "MutatingWebhookConfiguration": true, "Namespace": true, "Node": true,
	"PersistentVolume": true, "PriorityClass": true, "PriorityLevelConfiguration": true, "RuntimeClass": true,
	"StorageClass": true, "ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true,
	"ValidatingWebhookConfiguration": true, "VolumeAttachment": true,
}

// GuessNamespaced guesses whether a kind has namespaces without asking a
// cluster. Custom resources are taken to have them.
func GuessNamespaced(gvk schema.GroupVersionKind) bool {
	return !isBuiltinGroup(gvk.Group) || !clusterScoped[gvk.Kind]
}
