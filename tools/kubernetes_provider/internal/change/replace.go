package change

import (
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"torchx-pulumi/kubernetes-provider/internal/object"
)

// Mutability says which kinds may change in place what the provider replaces
// by default.
type Mutability struct {
	ConfigMaps bool
	Secrets    bool
}

// ForceNew lists the properties of an object whose change means a new object.
// "[*]" stands for every element of a list.
func ForceNew(obj *unstructured.Unstructured, mutable Mutability) []string {
	forced := []string{"metadata.name", "metadata.namespace", "kind"}
	gvk := object.GVK(obj)
	switch gvk.GroupKind() {
	case schema.GroupKind{Kind: "Secret"}:
		forced = append(forced, "type")
		if !mutable.Secrets || isImmutable(obj) {
			forced = append(forced, "stringData", "data")
		}
	case schema.GroupKind{Kind: "ConfigMap"}:
		if !mutable.ConfigMaps || isImmutable(obj) {
			forced = append(forced, "binaryData", "data")
		}
	default:
		forced = append(forced, forceNewByKind[gvk.GroupKind()]...)
	}
	return forced
}

func isImmutable(obj *unstructured.Unstructured) bool {
	immutable, _ := obj.Object["immutable"].(bool)
	return immutable
}

// Forces tells whether a change is of, in or around one of the properties.
func Forces(found Change, properties []string) bool {
	for _, property := range properties {
		if pattern := mustParse(property); pattern.Contains(found.Path) || around(pattern, found) {
			return true
		}
	}
	return false
}

// around tells whether the property lies in what appears or changes as a whole.
func around(pattern resource.PropertyPath, found Change) bool {
	depth := len(found.Path)
	return depth < len(pattern) && pattern[:depth].Contains(found.Path) && has(found.New, pattern[depth:])
}

func has(value any, pattern resource.PropertyPath) bool {
	if len(pattern) == 0 {
		return true
	}
	switch value := value.(type) {
	case map[string]any:
		key, isKey := pattern[0].(string)
		element, found := value[key]
		return isKey && found && has(element, pattern[1:])
	case []any:
		for _, element := range value {
			if pattern[0] == anyElement && has(element, pattern[1:]) {
				return true
			}
		}
	}
	return false
}

// anyElement is how the SDK's property paths spell "[*]".
const anyElement = "*"

// mustParse parses a property of this package's own tables.
func mustParse(property string) resource.PropertyPath {
	path, err := resource.ParsePropertyPath(property)
	if err != nil {
		panic(fmt.Sprintf("table of immutable properties: %q: %v", property, err))
	}
	return path
}

// DropIgnored removes the changes that ignoreChanges covers: of the property
// itself or in it.
func DropIgnored(found []Change, ignored []string) ([]Change, error) {
	kept := found
	for _, text := range ignored {
		path, err := resource.ParsePropertyPath(text)
		if err != nil {
			return nil, fmt.Errorf("failed to parse ignore path %q: %w", text, err)
		}
		kept = slices.DeleteFunc(kept, func(change Change) bool { return path.Contains(change.Path) })
	}
	return kept, nil
}
