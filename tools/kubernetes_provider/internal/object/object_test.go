package object

import (
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var unknown = resource.Computed{Element: resource.NewStringProperty("")}

func tree(pairs ...any) map[string]any {
	made := map[string]any{}
	for index := 0; index < len(pairs); index += 2 {
		made[pairs[index].(string)] = pairs[index+1]
	}
	return made
}

func named(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: tree("apiVersion", "v1", "kind", "Pod", "metadata", tree("name", name))}
}

func owner(token string) urn.URN {
	return urn.URN("urn:pulumi:dev::project::" + token + "::train")
}

func TestPropertiesGoThereAndBack(t *testing.T) {
	program := resource.PropertyMap{
		"spec": resource.NewObjectProperty(resource.PropertyMap{
			"size":                       resource.NewNumberProperty(2),
			"token":                      resource.MakeSecret(resource.NewStringProperty("hush")),
			"later":                      resource.MakeComputed(resource.NewStringProperty("")),
			"x_kubernetes_list_map_keys": resource.NewStringProperty("name"),
		}),
	}
	spec := FromProperties(program).Object["spec"].(map[string]any)
	if spec["size"] != 2.0 || spec["token"] != "hush" || !HasUnknownRoot(spec["later"]) {
		t.Errorf("got %v", spec)
	}
	if spec["x-kubernetes-list-map-keys"] != "name" {
		t.Errorf("schema extension not renamed: %v", spec)
	}
	back := ToProperties(tree("x-kubernetes-list-map-keys", "name"))
	if _, found := back["x_kubernetes_list_map_keys"]; !found {
		t.Errorf("schema extension not renamed back: %v", back)
	}
}

func TestHasUnknownLooksEverywhere(t *testing.T) {
	for _, value := range []any{unknown, tree("a", []any{1.0, tree("b", unknown)})} {
		if !HasUnknown(value) {
			t.Errorf("%v: unknown not found", value)
		}
	}
	if HasUnknown(tree("a", []any{"04da6b54", nil})) {
		t.Error("found an unknown where there is none")
	}
}

func TestPruneKeepsWhatTheShapeNames(t *testing.T) {
	live := tree("a", 1, "b", tree("c", 2, "d", 3), "l", []any{tree("x", 1, "y", 2), tree("x", 3)}, "t", "text")
	shape := tree("a", 9, "b", tree("c", 0), "l", []any{tree("x", 0)}, "t", tree("k", 1), "gone", true)
	want := tree("a", 1, "b", tree("c", 2), "l", []any{tree("x", 1)}, "t", "text")
	if got := Prune(live, shape); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestIDs(t *testing.T) {
	obj := named("n")
	if got := ID(obj); got != "n" {
		t.Errorf("got %q", got)
	}
	obj.SetNamespace("s")
	if namespace, name, err := ParseID(ID(obj)); namespace != "s" || name != "n" || err != nil {
		t.Errorf("got %q %q %v", namespace, name, err)
	}
	for _, wrong := range []string{"", "/", "a/", "/b", "a/b/c"} {
		if _, _, err := ParseID(wrong); err == nil {
			t.Errorf("%q: expected an error", wrong)
		}
	}
}

func TestAssignName(t *testing.T) {
	unnamed := func() *unstructured.Unstructured { return &unstructured.Unstructured{Object: map[string]any{}} }
	obj := unnamed()
	if err := AssignName(obj, owner("kubernetes:core/v1:Pod"), nil, nil); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^train-[0-9a-f]{8}$`).MatchString(obj.GetName()) || !IsAutonamed(obj) {
		t.Errorf("got %v", obj)
	}
	proposed := &pulumirpc.CheckRequest_AutonamingOptions{
		Mode: pulumirpc.CheckRequest_AutonamingOptions_PROPOSE, ProposedName: "mine",
	}
	obj = unnamed()
	if err := AssignName(obj, owner("kubernetes:core/v1:Pod"), nil, proposed); err != nil || obj.GetName() != "mine" {
		t.Errorf("got %v, %v", obj, err)
	}
	disabled := &pulumirpc.CheckRequest_AutonamingOptions{Mode: pulumirpc.CheckRequest_AutonamingOptions_DISABLE}
	if err := AssignName(unnamed(), owner("kubernetes:core/v1:Pod"), nil, disabled); err == nil {
		t.Error("expected autonaming to be refused")
	}
}

func TestANameThatIsNotYetKnownIsAName(t *testing.T) {
	for _, metadata := range []any{unknown, tree("name", unknown)} {
		obj := &unstructured.Unstructured{Object: tree("metadata", metadata)}
		if err := AssignName(obj, owner("kubernetes:core/v1:Pod"), nil, nil); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(obj.Object["metadata"], metadata) {
			t.Errorf("named: %v", obj.Object)
		}
	}
}

func TestOnlyANameOfOurOwnIsAdopted(t *testing.T) {
	old, obj := named("old"), &unstructured.Unstructured{Object: map[string]any{}}
	AdoptName(obj, old)
	if obj.GetName() != "" {
		t.Errorf("adopted a name that the user chose: %v", obj)
	}
	setAutoname(old, "old")
	AdoptName(obj, old)
	if obj.GetName() != "old" || !IsAutonamed(obj) {
		t.Errorf("got %v", obj)
	}
}

func TestTimeouts(t *testing.T) {
	obj := named("n")
	if got := Timeout(0, obj, time.Minute); got != time.Minute {
		t.Errorf("got %v", got)
	}
	obj.SetAnnotations(map[string]string{AnnotationTimeoutSeconds: "5"})
	if got := Timeout(0, obj, time.Minute); got != 5*time.Second {
		t.Errorf("got %v", got)
	}
	if got := Timeout(1.5, obj, time.Minute); got != 1500*time.Millisecond {
		t.Errorf("got %v", got)
	}
}

func TestDeletionPropagation(t *testing.T) {
	for text, want := range map[string]metav1.DeletionPropagation{
		"": metav1.DeletePropagationForeground, "Orphan": metav1.DeletePropagationOrphan,
		"background": metav1.DeletePropagationBackground, "nonsense": metav1.DeletePropagationForeground,
	} {
		obj := named("n")
		obj.SetAnnotations(map[string]string{AnnotationDeletionPropagation: text})
		if got := DeletionPropagation(obj); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestMarkSecrets(t *testing.T) {
	text := resource.NewStringProperty
	outs := resource.PropertyMap{
		"a": text("1"), "b": resource.NewObjectProperty(resource.PropertyMap{"c": text("2"), "d": text("3")}),
		"l": resource.NewArrayProperty([]resource.PropertyValue{text("4")}),
	}
	ins := resource.PropertyMap{
		"b":      resource.NewObjectProperty(resource.PropertyMap{"c": resource.MakeSecret(text("2"))}),
		"l":      resource.NewArrayProperty([]resource.PropertyValue{resource.MakeSecret(text("4"))}),
		"absent": resource.MakeSecret(text("5")),
	}
	MarkSecrets(outs, ins)
	inner := outs["b"].ObjectValue()
	if outs["a"].IsSecret() || outs["b"].IsSecret() || !inner["c"].IsSecret() || inner["d"].IsSecret() || !outs["l"].IsSecret() {
		t.Errorf("got %v", outs)
	}
	kept := resource.PropertyMap{"kind": text("Secret"), "data": text("x"), "type": text("Opaque")}
	MarkSecrets(kept, nil)
	if !kept["data"].IsSecret() || kept["type"].IsSecret() {
		t.Errorf("got %v", kept)
	}
}

func TestGVKFromURN(t *testing.T) {
	for token, want := range map[string]schema.GroupVersionKind{
		"kubernetes:core/v1:Pod":                      {Version: "v1", Kind: "Pod"},
		"kubernetes:batch.volcano.sh/v1alpha1:Job":    {Group: "batch.volcano.sh", Version: "v1alpha1", Kind: "Job"},
		"kubernetes:apiextensions.k8s.io/v1:Anything": {Group: "apiextensions.k8s.io", Version: "v1", Kind: "Anything"},
	} {
		if got, err := GVKFromURN(owner(token)); got != want || err != nil {
			t.Errorf("%s: got %v, %v", token, got, err)
		}
	}
	for _, token := range []string{"kubernetes:index:Thing", "aws:s3/bucket:Bucket"} {
		if _, err := GVKFromURN(owner(token)); err == nil {
			t.Errorf("%s: expected an error", token)
		}
	}
}

func TestUnserved(t *testing.T) {
	for token, kind := range map[string]string{
		"kubernetes:helm.sh/v3:Release": "Release", "kubernetes:yaml:ConfigFile": "", "kubernetes:core/v1:PodPatch": "Pod",
		"kubernetes:core/v1:PodList": "PodList", "kubernetes:kustomize/v2:Directory": "",
	} {
		if Unserved(owner(token), kind) == "" {
			t.Errorf("%s is said to be served", token)
		}
	}
	for token, kind := range map[string]string{
		"kubernetes:core/v1:Pod": "Pod", "kubernetes:example.test/v1:AllowList": "AllowList",
		"kubernetes:example.test/v1:HotPatch": "HotPatch",
	} {
		if what := Unserved(owner(token), kind); what != "" {
			t.Errorf("%s is refused as %s", token, what)
		}
	}
}

func TestNormalizeSpellsAsTheServerDoes(t *testing.T) {
	container := tree("name", "c", "resources", tree("limits", tree("cpu", "1000m", "memory", "1Gi")))
	pod := &unstructured.Unstructured{Object: tree("apiVersion", "v1", "kind", "Pod",
		"metadata", tree("name", "p", "uid", "x"), "spec", tree("containers", []any{container}))}
	normal, err := Normalize(pod)
	if err != nil {
		t.Fatal(err)
	}
	containers, _, _ := unstructured.NestedSlice(normal.Object, "spec", "containers")
	cpu, _, _ := unstructured.NestedString(containers[0].(map[string]any), "resources", "limits", "cpu")
	if cpu != "1" || normal.GetUID() != "" {
		t.Errorf("got %v", normal.Object)
	}
	if got := container["resources"].(map[string]any)["limits"].(map[string]any)["cpu"]; got != "1000m" {
		t.Errorf("the inputs were changed: %v", got)
	}
}

func TestNormalizeLeavesCustomResourcesAndUnknowns(t *testing.T) {
	custom := &unstructured.Unstructured{Object: tree("apiVersion", "example.test/v1", "kind", "Job",
		"spec", tree("cpu", "1000m"))}
	open := &unstructured.Unstructured{Object: tree("apiVersion", "v1", "kind", "Pod",
		"spec", tree("nodeName", unknown, "hostNetwork", false))}
	for _, obj := range []*unstructured.Unstructured{custom, open} {
		normal, err := Normalize(obj)
		if err != nil || !reflect.DeepEqual(normal.Object, obj.Object) {
			t.Errorf("got %v, %v", normal, err)
		}
	}
}

func TestNormalizeRefusesWhatDoesNotFit(t *testing.T) {
	pod := &unstructured.Unstructured{Object: tree("apiVersion", "v1", "kind", "Pod", "spec", "text")}
	if _, err := Normalize(pod); err == nil {
		t.Error("expected an error")
	}
}

func TestNormalizeEncodesTheTextOfASecret(t *testing.T) {
	secret := &unstructured.Unstructured{Object: tree("apiVersion", "v1", "kind", "Secret",
		"data", tree("a", "YQ==", "b", "Yg=="), "stringData", tree("b", "hush"))}
	normal, err := Normalize(secret)
	if err != nil {
		t.Fatal(err)
	}
	if want := tree("a", "YQ==", "b", "aHVzaA=="); !reflect.DeepEqual(normal.Object["data"], want) {
		t.Errorf("got %v, want %v", normal.Object["data"], want)
	}
	if _, found := normal.Object["stringData"]; found {
		t.Error("stringData is still there")
	}
}

func TestGuessNamespaced(t *testing.T) {
	for gvk, want := range map[schema.GroupVersionKind]bool{
		{Version: "v1", Kind: "Namespace"}:                                 false,
		{Version: "v1", Kind: "Pod"}:                                       true,
		{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"}: false,
		{Group: "example.test", Version: "v1", Kind: "PriorityClass"}:      true,
	} {
		if got := GuessNamespaced(gvk); got != want {
			t.Errorf("%v: got %v", gvk, got)
		}
	}
}
