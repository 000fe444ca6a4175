package cluster

import (
	"fmt"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"torchx-pulumi/kubernetes-provider/internal/object"
)

// leaveIgnored returns the inputs with the ignored properties as the cluster
// has them: left out where another manager alone owns them, at their live
// value otherwise. Properties inside lists stay as the program has them, as in
// the official provider.
func leaveIgnored(apply Apply, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if len(apply.IgnoreChanges) == 0 {
		return apply.Inputs, nil
	}
	ours, theirs, err := owners(live.GetManagedFields(), apply.Manager)
	if err != nil {
		return nil, fmt.Errorf("reading the field managers of %q: %w", live.GetName(), err)
	}
	inputs := object.Copy(apply.Inputs)
	for _, text := range apply.IgnoreChanges {
		keys, err := mapKeys(text)
		if err != nil {
			return nil, err
		}
		if keys == nil {
			continue
		}
		path := fieldpath.MakePathOrDie(keys...)
		fields := stringsOf(keys)
		if theirs.Has(path) && !ours.Has(path) {
			unstructured.RemoveNestedField(inputs.Object, fields...)
			continue
		}
		value, found, err := unstructured.NestedFieldCopy(live.Object, fields...)
		if err != nil {
			return nil, fmt.Errorf("ignoreChanges %q: %w", text, err)
		}
		if found {
			if err := unstructured.SetNestedField(inputs.Object, value, fields...); err != nil {
				return nil, fmt.Errorf("ignoreChanges %q: %w", text, err)
			}
		}
	}
	return inputs, nil
}

// owners returns the fields of one manager and those of all others, parents
// included.
func owners(entries []metav1.ManagedFieldsEntry, manager string) (ours, theirs *fieldpath.Set, err error) {
	ours, theirs = fieldpath.NewSet(), fieldpath.NewSet()
	for _, entry := range entries {
		fields, err := fieldSet(entry)
		if err != nil {
			return nil, nil, err
		}
		target := theirs
		if entry.Manager == manager {
			target = ours
		}
		fields.Iterate(func(path fieldpath.Path) {
			for length := range path {
				target.Insert(path[:length+1].Copy())
			}
		})
	}
	return ours, theirs, nil
}

// mapKeys splits a property path; nil for one that leads into a list.
func mapKeys(text string) ([]any, error) {
	path, err := resource.ParsePropertyPath(text)
	if err != nil {
		return nil, fmt.Errorf("unable to parse ignoreField path %q: %w", text, err)
	}
	for _, step := range path {
		if key, isKey := step.(string); !isKey || strings.Contains(key, "*") {
			return nil, nil
		}
	}
	return path, nil
}

func stringsOf(keys []any) []string {
	texts := make([]string, len(keys))
	for index, key := range keys {
		texts[index] = key.(string)
	}
	return texts
}
