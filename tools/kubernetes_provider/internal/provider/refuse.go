package provider

import (
	"context"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"torchx-pulumi/kubernetes-provider/internal/object"
)

// notServed is the answer to what only the official provider does.
func notServed(what string) error {
	return status.Errorf(codes.Unimplemented, "the stand-in Kubernetes provider does not serve %s: "+
		"install the official plugin with `pulumi plugin install resource kubernetes`", what)
}

func refuseUnserved(owner urn.URN, kind string) error {
	if what := object.Unserved(owner, kind); what != "" {
		return notServed(fmt.Sprintf("%s (%s)", what, owner.Type()))
	}
	return nil
}

// Invoke refuses all functions: they render YAML, Helm charts, kustomizations.
func (p *Provider) Invoke(_ context.Context, request *pulumirpc.InvokeRequest) (*pulumirpc.InvokeResponse, error) {
	return nil, notServed(fmt.Sprintf("the function %q", request.GetTok()))
}

// Call refuses methods of components.
func (p *Provider) Call(_ context.Context, request *pulumirpc.CallRequest) (*pulumirpc.CallResponse, error) {
	return nil, notServed(fmt.Sprintf("the method %q", request.GetTok()))
}

// Construct refuses components: charts, kustomizations, YAML groups.
func (p *Provider) Construct(
	_ context.Context, request *pulumirpc.ConstructRequest,
) (*pulumirpc.ConstructResponse, error) {
	return nil, notServed(fmt.Sprintf("the component %q", request.GetType()))
}

// Parameterize refuses packages made from CustomResourceDefinitions.
func (p *Provider) Parameterize(
	context.Context, *pulumirpc.ParameterizeRequest,
) (*pulumirpc.ParameterizeResponse, error) {
	return nil, notServed("parameterized packages")
}
