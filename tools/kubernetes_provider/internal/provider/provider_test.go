package provider

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"torchx-pulumi/kubernetes-provider/internal/await"
	"torchx-pulumi/kubernetes-provider/internal/cluster"
)

func TestSettingsHaveTheOfficialDefaults(t *testing.T) {
	read, err := readSettings(nil, "agent")
	if err != nil {
		t.Fatal(err)
	}
	if read.clientSide || read.deleteUnreachable || read.target.Burst != 120 || read.target.QPS != 50 || read.target.Timeout != 0 {
		t.Errorf("got %+v", read)
	}
}

func TestSettingsAreRead(t *testing.T) {
	t.Setenv("PULUMI_K8S_DELETE_UNREACHABLE", "true")
	t.Setenv("PULUMI_K8S_ENABLE_SERVER_SIDE_APPLY", "true")
	t.Setenv("PULUMI_K8S_CLIENT_BURST", "7")
	read, err := readSettings(map[string]string{
		"kubernetes:config:enableServerSideApply": "false", "kubernetes:config:namespace": "n",
		"kubernetes:config:kubeClientSettings": `{"qps": 2.5, "timeout": 3}`,
	}, "agent")
	if err != nil {
		t.Fatal(err)
	}
	if !read.clientSide || !read.deleteUnreachable || read.namespace != "n" {
		t.Errorf("got %+v", read)
	}
	if read.target.Burst != 7 || read.target.QPS != 2.5 || read.target.Timeout.Seconds() != 3 {
		t.Errorf("got %+v", read.target)
	}
}

func TestSettingsThatCannotBeReadAreRefused(t *testing.T) {
	if _, err := readSettings(map[string]string{"kubernetes:config:kubeClientSettings": "{"}, ""); err == nil {
		t.Error("expected malformed JSON to be refused")
	}
	t.Setenv("PULUMI_K8S_CLIENT_QPS", "many")
	if _, err := readSettings(nil, ""); err == nil {
		t.Error("expected a malformed environment variable to be refused")
	}
}

func checkConfig(t *testing.T, urn string, given map[string]any) []*pulumirpc.CheckFailure {
	t.Helper()
	news, err := structpb.NewStruct(given)
	if err != nil {
		t.Fatal(err)
	}
	response, err := New("1.0.0", nil).CheckConfig(context.Background(), &pulumirpc.CheckRequest{Urn: urn, News: news})
	if err != nil {
		t.Fatal(err)
	}
	return response.GetFailures()
}

func TestCheckConfigRefusesWhatItDoesNotHave(t *testing.T) {
	const named = "urn:pulumi:dev::p::pulumi:providers:kubernetes::named"
	const byDefault = "urn:pulumi:dev::p::pulumi:providers:kubernetes::default_4_34_2"
	for name, one := range map[string]struct {
		urn   string
		given map[string]any
		want  int
	}{
		"nothing":              {named, map[string]any{}, 0},
		"rendering":            {named, map[string]any{"renderYamlToDirectory": "out"}, 1},
		"strict, by default":   {byDefault, map[string]any{"strictMode": "true"}, 3},
		"strict, all given":    {named, map[string]any{"strictMode": "true", "kubeconfig": "k", "context": "c"}, 0},
		"strict, half of it":   {named, map[string]any{"strictMode": "true", "kubeconfig": "k"}, 1},
		"the engine's version": {named, map[string]any{"version": "4.34.2"}, 0},
	} {
		if got := checkConfig(t, one.urn, one.given); len(got) != one.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestUnknownSettingsAreNamed(t *testing.T) {
	got := unknownSettings(resource.PropertyMap{
		"kubeconfig": resource.NewStringProperty("x"), "kubeConfig": resource.NewStringProperty("x"),
		"version": resource.NewStringProperty("1"),
	})
	if len(got) != 1 || got[0] != "kubeConfig" {
		t.Errorf("got %v", got)
	}
}

func TestWhatIsNotServedSaysSo(t *testing.T) {
	_, err := New("1.0.0", nil).Invoke(context.Background(), &pulumirpc.InvokeRequest{Tok: "kubernetes:yaml:decode"})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), `"kubernetes:yaml:decode"`) ||
		!strings.Contains(err.Error(), "stand-in") {
		t.Errorf("got %v", err)
	}
}

func TestStateGoesThereAndBack(t *testing.T) {
	inputs := map[string]any{"apiVersion": "v1", "kind": "Thing", "spec": map[string]any{"token": "hush"}}
	live := map[string]any{
		"apiVersion": "v1", "kind": "Thing", "spec": map[string]any{"token": "hush", "more": "x"},
		"status": map[string]any{"phase": "Done"},
	}
	program := resource.NewPropertyMapFromMap(inputs)
	program["spec"].ObjectValue()["token"] = resource.MakeSecret(resource.NewStringProperty("hush"))
	written := state{
		inputs: &unstructured.Unstructured{Object: inputs}, live: &unstructured.Unstructured{Object: live},
		initialAPIVersion: "v1", fieldManager: "m",
	}.outputs(program)
	if spec := written["spec"].ObjectValue(); !spec["token"].IsSecret() || spec["more"].IsSecret() {
		t.Errorf("got %v", spec)
	}
	read := readState(written)
	if read.fieldManager != "m" || read.initialAPIVersion != "v1" {
		t.Errorf("got %+v", read)
	}
	if _, found := read.live.Object["__inputs"]; found || len(read.live.Object) != 4 {
		t.Errorf("got %v", read.live.Object)
	}
	if spec := read.inputs.Object["spec"].(map[string]any); spec["token"] != "hush" || len(spec) != 1 {
		t.Errorf("got %v", spec)
	}
}

func TestUnreachableReasons(t *testing.T) {
	for want, err := range map[string]error{
		"":                                nil,
		"failed to parse kubeconfig data": cluster.InvalidKubeconfigError{Cause: errors.New("x")},
		"unable to load schema information from the API server": cluster.UnreachableError{Cause: errors.New("x")},
		"unable to load Kubernetes client configuration":        errors.New("x"),
	} {
		if got := unreachableReason(err); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("%v: got %q", err, got)
		}
	}
}

func TestFailuresCarryStateAndReasons(t *testing.T) {
	incomplete := &await.Incomplete{Cause: errors.New("timed out"), Reasons: []string{"no node"}}
	err := initFailed("ns/n", incomplete, &structpb.Struct{}, nil)
	found, _ := status.FromError(err)
	for _, detail := range found.Details() {
		if failed, is := detail.(*pulumirpc.ErrorResourceInitFailed); is {
			if failed.GetId() != "ns/n" || len(failed.GetReasons()) != 2 || failed.GetReasons()[1] != "no node" {
				t.Errorf("got %v", failed)
			}
			return
		}
	}
	t.Errorf("no state in %v", err)
}

func TestNoVerdictIsToldFromARefusal(t *testing.T) {
	pods, namespaces := schema.GroupResource{Resource: "pods"}, schema.GroupResource{Resource: "namespaces"}
	for name, one := range map[string]struct {
		err  error
		want bool
	}{
		"may not ask":       {apierrors.NewForbidden(pods, "p", errors.New("rbac")), true},
		"namespace to come": {apierrors.NewNotFound(namespaces, "n"), true},
		"webhook changes":   {apierrors.NewBadRequest("admission webhook does not support dry run"), true},
		"webhook refuses":   {apierrors.NewBadRequest(`admission webhook "v" denied the request: no`), false},
		"something missing": {apierrors.NewNotFound(pods, "p"), false},
	} {
		if got := isNoVerdict(one.err); got != one.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
