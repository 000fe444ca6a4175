package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"

	"github.com/pulumi/pulumi/sdk/v3/go/common/providers"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"

	"torchx-pulumi/kubernetes-provider/internal/cluster"
	"torchx-pulumi/kubernetes-provider/internal/object"
)

// CheckConfig refuses settings that would change what happens and that the
// stand-in does not have, and warns of those that nobody has.
func (p *Provider) CheckConfig(
	ctx context.Context, request *pulumirpc.CheckRequest,
) (*pulumirpc.CheckResponse, error) {
	about := urn.URN(request.GetUrn())
	wanted, err := unmarshal("settings", request.GetNews())
	if err != nil {
		return nil, fmt.Errorf("CheckConfig failed because of malformed resource inputs: %w", err)
	}
	failures := strictFailures(about, wanted)
	if isGiven(wanted["renderYamlToDirectory"]) {
		failures = append(failures, &pulumirpc.CheckFailure{
			Property: "renderYamlToDirectory", Reason: notServed("rendering to YAML files").Error(),
		})
	}
	for _, name := range unknownSettings(wanted) {
		p.host().Warn(ctx, about, fmt.Sprintf("the Kubernetes provider has no setting %q: it is ignored", name))
	}
	return &pulumirpc.CheckResponse{Inputs: request.GetNews(), Failures: failures}, nil
}

func unknownSettings(wanted resource.PropertyMap) []string {
	var unknown []string
	for name := range wanted {
		if _, known := knownSettings[string(name)]; !known && !engineSettings[string(name)] {
			unknown = append(unknown, string(name))
		}
	}
	sort.Strings(unknown)
	return unknown
}

// strictFailures apply strict mode: an explicit provider with an explicit
// cluster, or nothing.
func strictFailures(about urn.URN, wanted resource.PropertyMap) []*pulumirpc.CheckFailure {
	if !isStrict(wanted) || !providers.IsProviderType(about.Type()) {
		return nil
	}
	var failures []*pulumirpc.CheckFailure
	if providers.IsDefaultProvider(about) {
		failures = append(failures, &pulumirpc.CheckFailure{Reason: "strict mode prohibits default provider"})
	}
	for _, name := range []string{"kubeconfig", "context"} {
		if !isGiven(wanted[resource.PropertyKey(name)]) {
			failures = append(failures, &pulumirpc.CheckFailure{
				Property: name, Reason: fmt.Sprintf("strict mode requires Provider %q argument", name),
			})
		}
	}
	return failures
}

func isStrict(wanted resource.PropertyMap) bool {
	if given := wanted["strictMode"]; given.HasValue() {
		return given.IsString() && given.StringValue() == "true" || given.IsBool() && given.BoolValue()
	}
	var ambient map[string]any
	if err := json.Unmarshal([]byte(os.Getenv("PULUMI_CONFIG")), &ambient); err != nil {
		return false // the engine sets none
	}
	return ambient["strictMode"] == "true"
}

func isGiven(value resource.PropertyValue) bool {
	if value.IsSecret() {
		return isGiven(value.SecretValue().Element)
	}
	return value.IsComputed() || value.IsString() && value.StringValue() != "" ||
		value.IsBool() && value.BoolValue() || value.IsObject()
}

// Configure connects to the cluster. A cluster that cannot be reached is no
// error yet: only operations that need it fail.
func (p *Provider) Configure(
	ctx context.Context, request *pulumirpc.ConfigureRequest,
) (*pulumirpc.ConfigureResponse, error) {
	read, err := readSettings(request.GetVariables(), "pulumi-kubernetes/"+p.version)
	if err != nil {
		return nil, err
	}
	p.settings, p.acceptsSecrets = read, request.GetAcceptSecrets()
	p.cluster, p.settings.namespace, err = cluster.Connect(read.target)
	p.unreachable = unreachableReason(err)
	if os.Getenv("PULUMI_K8S_AWAIT_ALL") == "true" {
		p.host().Warn(ctx, "", "the stand-in Kubernetes provider ignores PULUMI_K8S_AWAIT_ALL: "+
			"custom resources are ready as soon as they exist, unless the annotation "+object.AnnotationWaitFor+" says otherwise")
	}
	p.host().Info(ctx, "", "Kubernetes provider: a stand-in for the official one, version "+p.version)
	return &pulumirpc.ConfigureResponse{
		AcceptSecrets: true, SupportsPreview: true, SupportsAutonamingConfiguration: true,
	}, nil
}

func unreachableReason(err error) string {
	var invalid cluster.InvalidKubeconfigError
	var silent cluster.UnreachableError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &invalid):
		return fmt.Sprintf("failed to parse kubeconfig data in `kubernetes:config:kubeconfig`- %v", err)
	case errors.As(err, &silent):
		return fmt.Sprintf("unable to load schema information from the API server: %v", err)
	}
	return fmt.Sprintf("unable to load Kubernetes client configuration from kubeconfig file. Make sure you have: \n\n"+
		" \t • set up the provider as per "+
		"https://www.pulumi.com/registry/packages/kubernetes/installation-configuration/ \n\n %v", err)
}
