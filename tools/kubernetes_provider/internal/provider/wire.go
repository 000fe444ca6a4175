package provider

import (
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"google.golang.org/protobuf/types/known/structpb"
)

// unmarshal reads properties off the wire, unknowns and secrets kept, nulls
// dropped: to Kubernetes a null is a field that is not there.
func unmarshal(label string, properties *structpb.Struct) (resource.PropertyMap, error) {
	return plugin.UnmarshalProperties(properties, plugin.MarshalOptions{
		Label: label, KeepUnknowns: true, KeepSecrets: true, SkipNulls: true,
	})
}

// marshal writes properties to the wire; secrets stay marked if the engine
// takes marks.
func (p *Provider) marshal(label string, properties resource.PropertyMap) (*structpb.Struct, error) {
	return plugin.MarshalProperties(properties, plugin.MarshalOptions{
		Label: label, KeepUnknowns: true, KeepSecrets: p.acceptsSecrets, SkipNulls: true,
	})
}
