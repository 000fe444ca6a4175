package object

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ID is the Pulumi id of an object: "namespace/name", or "name" for a kind
// without namespaces.
func ID(obj *unstructured.Unstructured) string {
	if namespace := obj.GetNamespace(); namespace != "" {
		return namespace + "/" + obj.GetName()
	}
	return obj.GetName()
}

// ParseID splits an id into namespace, which may be empty, and name.
func ParseID(id string) (namespace, name string, err error) {
	parts := strings.Split(id, "/")
	switch {
	case len(parts) == 1 && parts[0] != "":
		return "", parts[0], nil
	case len(parts) == 2 && parts[0] != "" && parts[1] != "":
		return parts[0], parts[1], nil
	}
	return "", "", fmt.Errorf(
		"failed to read resource because of a failure to parse resource name from request ID: %q: "+
			"expected \"name\" or \"namespace/name\"", id)
}

// IsNamed tells whether the object has a name, known or not yet known.
func IsNamed(obj *unstructured.Unstructured) bool {
	name, found := metadataField(obj, "name")
	return found && (HasUnknown(name) || name != "")
}

// IsGenerateName tells whether the API server is asked to choose the name.
func IsGenerateName(obj *unstructured.Unstructured) bool {
	prefix, found := metadataField(obj, "generateName")
	return found && !IsNamed(obj) && (HasUnknown(prefix) || prefix != "")
}

// IsAutonamed tells whether the provider chose the name.
func IsAutonamed(obj *unstructured.Unstructured) bool {
	return IsAnnotationTrue(obj, AnnotationAutonamed)
}

// AssignName gives an object without a name one of its own: the resource's
// name and eight hexadecimal digits, or what the engine proposes.
func AssignName(
	obj *unstructured.Unstructured, owner urn.URN, seed []byte, engine *pulumirpc.CheckRequest_AutonamingOptions,
) error {
	if IsNamed(obj) || IsGenerateName(obj) {
		return nil
	}
	if engine != nil {
		switch engine.Mode {
		case pulumirpc.CheckRequest_AutonamingOptions_DISABLE:
			return errors.New("autonaming is disabled, resource requires the .metadata.name field to be set")
		case pulumirpc.CheckRequest_AutonamingOptions_ENFORCE, pulumirpc.CheckRequest_AutonamingOptions_PROPOSE:
			setAutoname(obj, engine.ProposedName)
			return nil
		}
	}
	name, err := resource.NewUniqueName(seed, owner.Name()+"-", 0, 0, nil)
	if err != nil {
		return fmt.Errorf("choosing a name for %q: %w", owner, err)
	}
	setAutoname(obj, name)
	return nil
}

// AdoptName gives an object without a name the name that the provider chose
// for its predecessor.
func AdoptName(obj, old *unstructured.Unstructured) {
	if !IsNamed(obj) && IsAutonamed(old) && old.GetName() != "" {
		setAutoname(obj, old.GetName())
	}
}

func setAutoname(obj *unstructured.Unstructured, name string) {
	metadata, known := editableMap(obj.Object, "metadata")
	if !known {
		return
	}
	metadata["name"] = name
	if annotations, known := editableMap(metadata, "annotations"); known {
		annotations[AnnotationAutonamed] = "true"
	}
}

// SetNamespace sets or, with an empty string, removes the namespace. It does
// nothing when the metadata as a whole is not yet known.
func SetNamespace(obj *unstructured.Unstructured, namespace string) {
	metadata, known := editableMap(obj.Object, "metadata")
	if !known {
		return
	}
	if namespace == "" {
		delete(metadata, "namespace")
		return
	}
	metadata["namespace"] = namespace
}

// HasNamespace tells whether a namespace is given, known or not yet known.
func HasNamespace(obj *unstructured.Unstructured) bool {
	namespace, found := metadataField(obj, "namespace")
	return found && (HasUnknown(namespace) || namespace != "")
}

func metadataField(obj *unstructured.Unstructured, field string) (any, bool) {
	if HasUnknownRoot(obj.Object["metadata"]) {
		return obj.Object["metadata"], true
	}
	metadata, isMap := obj.Object["metadata"].(map[string]any)
	if !isMap {
		return nil, false
	}
	value, found := metadata[field]
	return value, found && value != nil
}

// HasUnknownRoot tells whether the value as a whole is not yet known.
func HasUnknownRoot(value any) bool {
	_, unknown := value.(resource.Computed)
	return unknown
}

// editableMap returns the map under key, made when absent; false when what is
// there is no map, as for a value that is not yet known.
func editableMap(parent map[string]any, key string) (map[string]any, bool) {
	switch value := parent[key].(type) {
	case map[string]any:
		return value, true
	case nil:
		made := map[string]any{}
		parent[key] = made
		return made, true
	default:
		return nil, false
	}
}
