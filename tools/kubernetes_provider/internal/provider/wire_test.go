package provider

import (
	"reflect"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"google.golang.org/protobuf/proto"
)

func TestTheWireIsTheOneOfTheSDK(t *testing.T) {
	properties := resource.PropertyMap{
		"text":    resource.NewStringProperty("a"),
		"null":    resource.NewNullProperty(),
		"unknown": resource.MakeComputed(resource.NewStringProperty("")),
		"secret":  resource.MakeSecret(resource.NewObjectProperty(resource.PropertyMap{"b": resource.NewNumberProperty(1)})),
		"empty":   resource.NewArrayProperty(nil),
		"list": resource.NewArrayProperty([]resource.PropertyValue{
			resource.NewNullProperty(),
			resource.MakeComputed(resource.NewObjectProperty(resource.PropertyMap{})),
			resource.NewObjectProperty(resource.PropertyMap{
				"c": resource.NewBoolProperty(true), "d": resource.NewNullProperty(),
				"e": resource.MakeSecret(resource.NewStringProperty("s")), "f": resource.NewObjectProperty(resource.PropertyMap{}),
			}),
		}),
	}
	for _, acceptsSecrets := range []bool{true, false} {
		options := plugin.MarshalOptions{KeepUnknowns: true, KeepSecrets: acceptsSecrets, SkipNulls: true}
		want, err := plugin.MarshalProperties(properties, options)
		if err != nil {
			t.Fatal(err)
		}
		got, err := (&Provider{acceptsSecrets: acceptsSecrets}).marshal("", properties)
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
		options.KeepSecrets = true
		wantRead, err := plugin.UnmarshalProperties(want, options)
		if err != nil {
			t.Fatal(err)
		}
		gotRead, err := unmarshal("", want)
		if err != nil || !reflect.DeepEqual(gotRead, wantRead) {
			t.Errorf("got %v, %v, want %v", gotRead, err, wantRead)
		}
	}
}

func TestPropertiesThatAreAbsentAreEmpty(t *testing.T) {
	if read, err := unmarshal("", nil); err != nil || read == nil || len(read) != 0 {
		t.Errorf("got %v, %v", read, err)
	}
}
