package cluster

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"torchx-pulumi/kubernetes-provider/internal/object"
)

func entry(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)},
	}
}

const (
	applied = metav1.ManagedFieldsOperationApply
	written = metav1.ManagedFieldsOperationUpdate
)

func TestKubectlIsTakenOverAndControllersAreNot(t *testing.T) {
	status := entry("kubectl-patch", written, `{"f:status":{}}`)
	status.Subresource = "status"
	merged, changed, err := mergeManagers([]metav1.ManagedFieldsEntry{
		entry("ours", applied, `{"f:spec":{"f:a":{}}}`), entry("kubectl-patch", written, `{"f:spec":{"f:b":{}}}`),
		entry("scheduler", written, `{"f:spec":{"f:c":{}}}`), status,
	}, "ours")
	if err != nil || !changed || len(merged) != 3 {
		t.Fatalf("got %v, %v, %v", merged, changed, err)
	}
	last := merged[2]
	if last.Manager != "ours" || string(last.FieldsV1.Raw) != `{"f:spec":{"f:a":{},"f:b":{}}}` {
		t.Errorf("got %s %s", last.Manager, last.FieldsV1.Raw)
	}
}

func TestNothingToTakeOverChangesNothing(t *testing.T) {
	entries := []metav1.ManagedFieldsEntry{entry("ours", applied, `{}`), entry("scheduler", written, `{}`)}
	if merged, changed, err := mergeManagers(entries, "ours"); changed || err != nil || len(merged) != 2 {
		t.Errorf("got %v, %v, %v", merged, changed, err)
	}
}

func TestOurOlderNamesAreTakenOver(t *testing.T) {
	merged, changed, err := mergeManagers(
		[]metav1.ManagedFieldsEntry{entry("pulumi-kubernetes", written, `{"f:spec":{}}`)}, "ours")
	if err != nil || !changed || len(merged) != 1 || merged[0].Manager != "ours" || merged[0].Operation != applied {
		t.Errorf("got %v, %v, %v", merged, changed, err)
	}
}

func objectOf(text string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &obj.Object); err != nil {
		panic(err)
	}
	return obj
}

func TestTakingOverIsTriedAgainAfterAConflict(t *testing.T) {
	widgets := schema.GroupVersionResource{Version: "v1", Resource: "widgets"}
	obj := objectOf(`{"apiVersion":"v1","kind":"Widget","metadata":{"name":"w","resourceVersion":"1"}}`)
	obj.SetManagedFields([]metav1.ManagedFieldsEntry{entry("pulumi-kubernetes", written, `{}`)})
	kinds := map[schema.GroupVersionResource]string{widgets: "WidgetList"}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, obj)
	patches := 0
	client.PrependReactor("patch", "widgets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if patches++; patches == 1 {
			return true, nil, apierrors.NewConflict(widgets.GroupResource(), "w", errors.New("modified"))
		}
		return true, obj, nil
	})
	live, err := takeOver(t.Context(), client.Resource(widgets), "w", "us")
	if err != nil || live.GetName() != "w" || patches != 2 {
		t.Errorf("got %v, %v after %d patches", live, err, patches)
	}
}

func TestForced(t *testing.T) {
	plain, forcing := objectOf(`{"kind":"X"}`), objectOf(`{"kind":"X"}`)
	forcing.SetAnnotations(map[string]string{object.AnnotationPatchForce: "true"})
	managed, old := objectOf(`{}`), objectOf(`{}`)
	managed.SetManagedFields([]metav1.ManagedFieldsEntry{entry("x", written, `{}`)})
	old.SetManagedFields([]metav1.ManagedFieldsEntry{entry("pulumi-kubernetes", written, `{}`)})
	for name, one := range map[string]struct {
		apply Apply
		live  *unstructured.Unstructured
		want  bool
	}{
		"annotation":            {Apply{Inputs: forcing}, managed, true},
		"update":                {Apply{Inputs: plain}, managed, false},
		"preview of update":     {Apply{Inputs: plain, DryRun: true}, managed, false},
		"preview, our creation": {Apply{Inputs: plain, DryRun: true}, old, true},
		"nobody's":              {Apply{Inputs: plain}, objectOf(`{}`), true},
	} {
		if got := forced(one.apply, one.live); got != one.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestIgnoredPropertiesStayAsTheClusterHasThem(t *testing.T) {
	live := objectOf(`{"spec":{"mine":1,"theirs":2,"list":[1]}}`)
	live.SetManagedFields([]metav1.ManagedFieldsEntry{
		entry("ours", applied, `{"f:spec":{"f:mine":{}}}`), entry("other", written, `{"f:spec":{"f:theirs":{}}}`),
	})
	inputs := objectOf(`{"spec":{"mine":9,"theirs":9,"list":[9]}}`)
	got, err := leaveIgnored(Apply{
		Inputs: inputs, Manager: "ours", IgnoreChanges: []string{"spec.mine", "spec.theirs", "spec.list[0]", "spec.absent"},
	}, live)
	if err != nil {
		t.Fatal(err)
	}
	spec := got.Object["spec"].(map[string]any)
	if _, found := spec["theirs"]; found || spec["mine"] != 1.0 {
		t.Errorf("got %v", spec)
	}
	if inputs.Object["spec"].(map[string]any)["mine"] != 9.0 {
		t.Error("the inputs were changed")
	}
}

func TestPatchesOfOldAreStrategicWhereTheTypeIsKnown(t *testing.T) {
	old, wanted := objectOf(`{"apiVersion":"v1","kind":"Pod","spec":{"a":1}}`), objectOf(`{"apiVersion":"v1","kind":"Pod","spec":{}}`)
	live := objectOf(`{"apiVersion":"v1","kind":"Pod","spec":{"a":1,"b":2}}`)
	if _, kind, err := threeWayPatch(old, wanted, live); kind != types.StrategicMergePatchType || err != nil {
		t.Errorf("got %v, %v", kind, err)
	}
	for _, obj := range []*unstructured.Unstructured{old, wanted, live} {
		obj.SetAPIVersion("example.test/v1")
	}
	body, kind, err := threeWayPatch(old, wanted, live)
	if string(body) != `{"spec":{"a":null}}` || kind != types.MergePatchType || err != nil {
		t.Errorf("got %s, %v, %v", body, kind, err)
	}
}

func TestConflictsAreExplained(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "jobs"}, "x", errors.New("Apply failed with 1 conflict"))
	err := explainConflict(conflict, "pulumi-kubernetes-1234abcd")
	for _, want := range []string{"server-side apply field conflict detected", `"pulumi-kubernetes-1234abcd"`, "Apply failed"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	if !apierrors.IsConflict(err) {
		t.Error("the kind of the error is lost")
	}
	if other := errors.New("x"); explainConflict(other, "m") != other {
		t.Error("another error was changed")
	}
}

func TestParseKubeconfigTakesAPathOrContents(t *testing.T) {
	contents := "apiVersion: v1\nkind: Config\ncurrent-context: x\nusers: [{name: u, user: {client-key: key.pem}}]\n"
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, given := range []string{contents, path} {
		if config, err := ParseKubeconfig(given); err != nil || config.CurrentContext != "x" {
			t.Errorf("got %v, %v", config, err)
		}
	}
	config, err := ParseKubeconfig(path)
	if err != nil || config.AuthInfos["u"].ClientKey != filepath.Join(filepath.Dir(path), "key.pem") {
		t.Errorf("a path beside the file is not resolved: %v, %v", config, err)
	}
	if _, err := ParseKubeconfig("{not yaml"); err == nil {
		t.Error("expected an error")
	}
}
