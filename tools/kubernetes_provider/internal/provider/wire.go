package provider

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/logging"
	"google.golang.org/protobuf/types/known/structpb"
)

// unmarshal reads properties off the wire, unknowns and secrets kept, nulls
// dropped: to Kubernetes a null is a field that is not there.
//
// It walks maps and lists itself. The SDK's function converts each map once
// for each map around it, which for a job of 1,000 tasks takes longer than
// everything else that a request needs.
func unmarshal(label string, properties *structpb.Struct) (resource.PropertyMap, error) {
	read, err := unmarshalMap(properties, plugin.MarshalOptions{
		Label: label, KeepUnknowns: true, KeepSecrets: true, SkipNulls: true,
	})
	logProperties("Unmarshaling", label, read)
	return read, err
}

// logProperties tells what a request or an answer has, as the SDK of provider
// 4.33 does: secrets in plain. The SDK of today would write "[secret]" for a
// property value, so it gets a text.
func logProperties(what, label string, properties resource.PropertyMap) {
	if !logging.V(9).Enabled() {
		return
	}
	for _, key := range properties.StableKeys() {
		logging.V(9).Infof("%s property for RPC[%s]: %s=%s", what, label, key, fmt.Sprint(properties[key]))
	}
}

func unmarshalMap(properties *structpb.Struct, options plugin.MarshalOptions) (resource.PropertyMap, error) {
	read := make(resource.PropertyMap, len(properties.GetFields()))
	for key, field := range properties.GetFields() {
		value, err := unmarshalValue(resource.PropertyKey(key), field, options)
		if err != nil {
			return nil, err
		}
		if value != nil && !value.IsNull() {
			read[resource.PropertyKey(key)] = *value
		}
	}
	return read, nil
}

func unmarshalValue(
	key resource.PropertyKey, value *structpb.Value, options plugin.MarshalOptions,
) (*resource.PropertyValue, error) {
	var read resource.PropertyValue
	switch kind := value.GetKind().(type) {
	case *structpb.Value_StructValue:
		if _, isMarked := kind.StructValue.GetFields()[resource.SigKey]; isMarked {
			return plugin.UnmarshalPropertyValue(key, value, options)
		}
		elements, err := unmarshalMap(kind.StructValue, options)
		if err != nil {
			return nil, err
		}
		read = resource.NewObjectProperty(elements)
	case *structpb.Value_ListValue:
		elements := make([]resource.PropertyValue, len(kind.ListValue.GetValues()))
		for index, field := range kind.ListValue.GetValues() {
			element, err := unmarshalValue(key, field, options)
			if err != nil {
				return nil, err
			}
			if element != nil {
				elements[index] = *element
			}
		}
		read = resource.NewArrayProperty(elements)
	default:
		return plugin.UnmarshalPropertyValue(key, value, options)
	}
	return &read, nil
}

// marshal writes properties to the wire; secrets stay marked if the engine
// takes marks.
func (p *Provider) marshal(label string, properties resource.PropertyMap) (*structpb.Struct, error) {
	logProperties("Marshaling", label, properties)
	return marshalMap(properties, plugin.MarshalOptions{
		Label: label, KeepUnknowns: true, KeepSecrets: p.acceptsSecrets, SkipNulls: true,
	})
}

func marshalMap(properties resource.PropertyMap, options plugin.MarshalOptions) (*structpb.Struct, error) {
	fields := make(map[string]*structpb.Value, len(properties))
	for key, value := range properties {
		if value.IsNull() {
			continue
		}
		field, err := marshalValue(key, value, options)
		if err != nil {
			return nil, err
		}
		if field != nil {
			fields[string(key)] = field
		}
	}
	return &structpb.Struct{Fields: fields}, nil
}

func marshalValue(
	key resource.PropertyKey, value resource.PropertyValue, options plugin.MarshalOptions,
) (*structpb.Value, error) {
	switch inner := value.V.(type) {
	case resource.PropertyMap:
		written, err := marshalMap(inner, options)
		if err != nil {
			return nil, err
		}
		return structpb.NewStructValue(written), nil
	case []resource.PropertyValue:
		written := make([]*structpb.Value, 0, len(inner))
		for _, element := range inner {
			field, err := marshalValue(key, element, options)
			if err != nil {
				return nil, err
			}
			if field != nil {
				written = append(written, field)
			}
		}
		return structpb.NewListValue(&structpb.ListValue{Values: written}), nil
	default:
		return plugin.MarshalPropertyValue(key, value, options)
	}
}
