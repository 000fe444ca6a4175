package engine

import (
	"context"
	"reflect"
	"testing"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

type recorder struct {
	pulumirpc.EngineClient
	messages []string
}

func (r *recorder) Log(
	_ context.Context, request *pulumirpc.LogRequest, _ ...grpc.CallOption,
) (*emptypb.Empty, error) {
	kind := request.GetSeverity().String()
	if request.GetEphemeral() {
		kind = "STATUS"
	}
	r.messages = append(r.messages, kind+" "+request.GetUrn()+" "+request.GetMessage())
	return &emptypb.Empty{}, nil
}

func TestReporterForgetsRepetitions(t *testing.T) {
	told := &recorder{}
	report := (&Engine{client: told}).For(context.Background(), "urn")
	report.Status("") // nothing is shown: nothing to clear
	report.Status("waiting")
	report.Status("waiting")
	report.Warn("no node")
	report.Warn("no node")
	report.Status("")
	want := []string{"STATUS urn waiting", "WARNING urn no node", "STATUS urn "}
	if !reflect.DeepEqual(told.messages, want) {
		t.Errorf("got %q, want %q", told.messages, want)
	}
}

func TestTextsThatAreNoUTF8AreMended(t *testing.T) {
	told := &recorder{}
	(&Engine{client: told}).Info(context.Background(), "", "a\xffb")
	if want := []string{"INFO  a?b"}; !reflect.DeepEqual(told.messages, want) {
		t.Errorf("got %q, want %q", told.messages, want)
	}
}

func TestWithoutAnEngineMessagesAreDropped(t *testing.T) {
	var none *Engine
	none.Info(context.Background(), "", "x")
	none.For(context.Background(), "").Warn("x")
}
