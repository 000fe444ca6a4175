package change

import (
	"reflect"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type tree = map[string]any

func kinds(found []Change) map[string]pulumirpc.PropertyDiff_Kind {
	named := map[string]pulumirpc.PropertyDiff_Kind{}
	for _, one := range found {
		named[one.Path.String()] = one.Kind
	}
	return named
}

func TestCompare(t *testing.T) {
	const added, deleted, updated = pulumirpc.PropertyDiff_ADD, pulumirpc.PropertyDiff_DELETE, pulumirpc.PropertyDiff_UPDATE
	for name, one := range map[string]struct {
		old, wanted tree
		want        map[string]pulumirpc.PropertyDiff_Kind
	}{
		"same":          {tree{"a": int64(1), "l": []any{"x"}}, tree{"a": 1.0, "l": []any{"x"}}, nil},
		"leaf":          {tree{"a": tree{"b": "1"}}, tree{"a": tree{"b": "2"}}, map[string]pulumirpc.PropertyDiff_Kind{"a.b": updated}},
		"whole map":     {tree{}, tree{"a": tree{"b": "1", "c": "2"}}, map[string]pulumirpc.PropertyDiff_Kind{"a": added}},
		"gone":          {tree{"a": tree{"b": "1"}}, tree{}, map[string]pulumirpc.PropertyDiff_Kind{"a": deleted}},
		"longer list":   {tree{"l": []any{"x"}}, tree{"l": []any{"x", "y"}}, map[string]pulumirpc.PropertyDiff_Kind{"l[1]": added}},
		"shorter list":  {tree{"l": []any{"x", "y"}}, tree{"l": []any{"x"}}, map[string]pulumirpc.PropertyDiff_Kind{"l[1]": deleted}},
		"other type":    {tree{"a": "1"}, tree{"a": tree{"b": "1"}}, map[string]pulumirpc.PropertyDiff_Kind{"a": updated}},
		"odd key":       {tree{"a": tree{"x/y.z": "1"}}, tree{"a": tree{"x/y.z": "2"}}, map[string]pulumirpc.PropertyDiff_Kind{`a["x/y.z"]`: updated}},
		"not yet known": {tree{"a": "1"}, tree{"a": resource.Computed{}}, map[string]pulumirpc.PropertyDiff_Kind{"a": updated}},
		"in a list": {
			tree{"tasks": []any{tree{"template": tree{"image": "1"}}}}, tree{"tasks": []any{tree{"template": tree{"image": "2"}}}},
			map[string]pulumirpc.PropertyDiff_Kind{"tasks[0].template.image": updated},
		},
	} {
		got := kinds(Compare(one.old, one.wanted))
		if len(got) != len(one.want) || len(got) > 0 && !reflect.DeepEqual(got, one.want) {
			t.Errorf("%s: got %v, want %v", name, got, one.want)
		}
	}
}

func TestPathsDoNotShareMemory(t *testing.T) {
	old := tree{"a": tree{"b": tree{"c": "1", "d": "1", "e": "1"}}}
	wanted := tree{"a": tree{"b": tree{"c": "2", "d": "2", "e": "2"}}}
	if got := kinds(Compare(old, wanted)); len(got) != 3 {
		t.Errorf("paths overwrite each other: %v", got)
	}
}

func made(apiVersion, kind string, more tree) *unstructured.Unstructured {
	content := tree{"apiVersion": apiVersion, "kind": kind}
	for key, value := range more {
		content[key] = value
	}
	return &unstructured.Unstructured{Object: content}
}

func TestForces(t *testing.T) {
	pod, job, custom := made("v1", "Pod", nil), made("batch/v1", "Job", nil), made("batch.volcano.sh/v1alpha1", "Job", nil)
	for name, one := range map[string]struct {
		obj  *unstructured.Unstructured
		path resource.PropertyPath
		new  any
		want bool
	}{
		"name":                       {custom, resource.PropertyPath{"metadata", "name"}, "x", true},
		"namespace":                  {custom, resource.PropertyPath{"metadata", "namespace"}, "x", true},
		"custom resource's template": {custom, resource.PropertyPath{"spec", "tasks", 0, "template"}, tree{}, false},
		"image in a list":            {pod, resource.PropertyPath{"spec", "containers", 1, "image"}, "x", true},
		"inside the property":        {pod, resource.PropertyPath{"spec", "containers", 0, "env", 2, "value"}, "x", true},
		"around the property":        {pod, resource.PropertyPath{"spec", "containers", 1}, tree{"image": "x"}, true},
		"around, without it":         {pod, resource.PropertyPath{"spec", "containers", 1}, tree{"name": "x"}, false},
		"labels":                     {pod, resource.PropertyPath{"metadata", "labels", "a"}, "b", false},
		"job's template":             {job, resource.PropertyPath{"spec", "template", "spec"}, tree{}, true},
		"job's backoff":              {job, resource.PropertyPath{"spec", "backoffLimit"}, 1.0, false},
	} {
		found := Change{Path: one.path, Kind: pulumirpc.PropertyDiff_UPDATE, New: one.new}
		if got := Forces(found, ForceNew(one.obj, Mutability{})); got != one.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestConfigMapsAndSecretsAreImmutableUnlessAllowed(t *testing.T) {
	data := Change{Path: resource.PropertyPath{"data", "a"}, Kind: pulumirpc.PropertyDiff_UPDATE, New: "x"}
	allowed := Mutability{ConfigMaps: true, Secrets: true}
	for _, kind := range []string{"ConfigMap", "Secret"} {
		free, fixed := made("v1", kind, nil), made("v1", kind, tree{"immutable": true})
		if !Forces(data, ForceNew(free, Mutability{})) {
			t.Errorf("%s: expected a replacement by default", kind)
		}
		if Forces(data, ForceNew(free, allowed)) {
			t.Errorf("%s: expected an update when allowed", kind)
		}
		if !Forces(data, ForceNew(fixed, allowed)) {
			t.Errorf("%s: expected a replacement of an immutable one", kind)
		}
	}
}

func TestEveryImmutablePropertyParses(t *testing.T) {
	for kind, properties := range forceNewByKind {
		for _, property := range properties {
			if path := mustParse(property); len(path) == 0 {
				t.Errorf("%v: %q is empty", kind, property)
			}
		}
	}
}

func TestDropIgnored(t *testing.T) {
	found := Compare(
		tree{"spec": tree{"a": "1", "l": []any{"x", "y"}}, "metadata": tree{"annotations": tree{"k.v/x": "1"}}},
		tree{"spec": tree{"a": "2", "l": []any{"x", "z"}}, "metadata": tree{"annotations": tree{"k.v/x": "2"}}},
	)
	for ignored, left := range map[string]int{
		"spec": 1, "spec.a": 2, "spec.l[1]": 2, "spec.l[0]": 3, "spec.l[*]": 2, `metadata.annotations["k.v/x"]`: 2, "other": 3,
	} {
		kept, err := DropIgnored(append([]Change(nil), found...), []string{ignored})
		if err != nil || len(kept) != left {
			t.Errorf("%s: got %v, %v", ignored, kinds(kept), err)
		}
	}
	if _, err := DropIgnored(found, []string{`spec["open`}); err == nil {
		t.Error("expected a malformed path to be refused")
	}
}
