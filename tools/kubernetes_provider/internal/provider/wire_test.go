package provider

import (
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/logging"
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

func TestOnlyTheLoudestLogShowsRequestsAndTheirSecretsAsTheOfficialOneDoes(t *testing.T) {
	spec := resource.NewPropertyMapFromMap(map[string]any{"queue": "default"})
	spec["token"] = resource.MakeSecret(resource.NewStringProperty("hush"))
	properties := resource.PropertyMap{"spec": resource.NewObjectProperty(spec)}
	for verbosity, want := range map[int]bool{8: false, 9: true} {
		log := logged(t, verbosity, func() {
			wire, err := (&Provider{acceptsSecrets: true}).marshal("inputs", properties)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := unmarshal("inputs", wire); err != nil {
				t.Fatal(err)
			}
		})
		for _, what := range []string{"Marshaling", "Unmarshaling"} {
			line := what + " property for RPC[inputs]: spec={map[queue:{default} token:{&{{hush}}}]}"
			if got := strings.Contains(log, line); got != want {
				t.Errorf("-v=%d: %q is there: %v, want %v: %s", verbosity, line, got, want, log)
			}
		}
		if strings.Contains(log, "hush") != want {
			t.Errorf("-v=%d: %s", verbosity, log)
		}
	}
}

// logged returns what the SDK's log got on stderr meanwhile.
func logged(t *testing.T, verbosity int, act func()) string {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = write
	logging.InitLogging(true, verbosity, false)
	defer func() { os.Stderr = stderr; logging.InitLogging(false, 0, false) }()
	act()
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}
