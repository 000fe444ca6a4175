package provider

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"torchx-pulumi/kubernetes-provider/internal/object"
)

// Keys of a resource's outputs beside the live object's own. They are those of
// the official provider, so that a stack may go from one to the other.
const (
	keyInputs            = "__inputs"
	keyInitialAPIVersion = "__initialApiVersion"
	keyFieldManager      = "__fieldManager"
)

// state is what Pulumi keeps of a resource.
type state struct {
	inputs, live      *unstructured.Unstructured
	initialAPIVersion string
	fieldManager      string
}

// readState takes a resource's outputs apart.
func readState(outputs resource.PropertyMap) state {
	read := state{
		inputs:            &unstructured.Unstructured{Object: map[string]any{}},
		initialAPIVersion: text(outputs[keyInitialAPIVersion]),
		fieldManager:      text(outputs[keyFieldManager]),
	}
	live := resource.PropertyMap{}
	for key, value := range outputs {
		switch key {
		case keyInputs:
			if inputs := plain(value); inputs.IsObject() {
				read.inputs = object.FromProperties(inputs.ObjectValue())
			}
		case keyInitialAPIVersion, keyFieldManager:
		default:
			live[key] = value
		}
	}
	read.live = object.FromProperties(live)
	return read
}

// outputs puts them together. What is secret in the program's inputs is secret
// in the outputs, and a Kubernetes Secret's data always is.
func (s state) outputs(program resource.PropertyMap) resource.PropertyMap {
	outputs, inputs := object.ToProperties(s.live.Object), object.ToProperties(s.inputs.Object)
	object.MarkSecrets(outputs, program)
	object.MarkSecrets(inputs, program)
	outputs[keyInputs] = resource.NewObjectProperty(inputs)
	outputs[keyInitialAPIVersion] = resource.NewStringProperty(s.initialAPIVersion)
	outputs[keyFieldManager] = resource.NewStringProperty(s.fieldManager)
	return outputs
}

func (p *Provider) marshalState(s state, program resource.PropertyMap) (*structpb.Struct, error) {
	marshaled, err := p.marshal("state", s.outputs(program))
	if err != nil {
		return nil, fmt.Errorf("writing the state of %q: %w", object.ID(s.live), err)
	}
	return marshaled, nil
}

// managerName is under what name the resource's fields are owned: what an
// annotation says, what the state says, or a new one.
func (p *Provider) managerName(known string, inputs *unstructured.Unstructured) (string, error) {
	if p.settings.clientSide {
		return "pulumi-kubernetes", nil
	}
	if chosen := object.Annotation(inputs, object.AnnotationPatchFieldManager); chosen != "" {
		return chosen, nil
	}
	if known != "" {
		return known, nil
	}
	name, err := resource.NewUniqueName(nil, "pulumi-kubernetes-", 0, 0, nil)
	if err != nil {
		return "", fmt.Errorf("choosing a field manager: %w", err)
	}
	return name, nil
}

func text(value resource.PropertyValue) string {
	if value = plain(value); value.IsString() {
		return value.StringValue()
	}
	return ""
}
