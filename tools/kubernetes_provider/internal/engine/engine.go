// Package engine speaks to Pulumi's engine: messages for the user, attached to
// the resource that they are about.
package engine

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/grpclog"
)

// The engine reads the provider's port from stdout: gRPC must not write there.
func init() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, os.Stderr)) }

// Engine is the running engine. A nil Engine drops every message, so that the
// provider can be driven without one.
type Engine struct{ client pulumirpc.EngineClient }

// Connect prepares the connection; it is made with the first message.
func Connect(address string) (*Engine, error) {
	connection, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), rpcutil.GrpcChannelOptions())
	if err != nil {
		return nil, fmt.Errorf("connecting to the engine at %q: %w", address, err)
	}
	return &Engine{client: pulumirpc.NewEngineClient(connection)}, nil
}

// Info leaves a note.
func (engine *Engine) Info(ctx context.Context, about urn.URN, message string) {
	engine.send(ctx, pulumirpc.LogSeverity_INFO, about, message, false)
}

// Warn leaves a warning.
func (engine *Engine) Warn(ctx context.Context, about urn.URN, message string) {
	engine.send(ctx, pulumirpc.LogSeverity_WARNING, about, message, false)
}

// Status shows a passing state; an empty message clears it.
func (engine *Engine) Status(ctx context.Context, about urn.URN, message string) {
	engine.send(ctx, pulumirpc.LogSeverity_INFO, about, message, true)
}

// send delivers a message. One that cannot be delivered changes nothing for the
// operation.
func (engine *Engine) send(
	ctx context.Context, severity pulumirpc.LogSeverity, about urn.URN, message string, passing bool,
) {
	if engine == nil {
		return
	}
	request := &pulumirpc.LogRequest{
		Severity: severity, Urn: string(about), Message: strings.ToValidUTF8(message, "?"), Ephemeral: passing,
	}
	if _, err := engine.client.Log(ctx, request); err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "%s (not delivered to the engine: %v)\n", message, err)
	}
}

// Reporter tells of one resource and forgets repetitions.
type Reporter struct {
	ctx    context.Context
	engine *Engine
	about  urn.URN

	mutex  sync.Mutex
	status string
	warned map[string]bool
}

// For returns the reporter of a resource, for one operation.
func (engine *Engine) For(ctx context.Context, about urn.URN) *Reporter {
	return &Reporter{ctx: ctx, engine: engine, about: about, warned: map[string]bool{}}
}

// Status shows a passing state unless it is the one that is shown.
func (reporter *Reporter) Status(message string) {
	reporter.mutex.Lock()
	defer reporter.mutex.Unlock()
	if reporter.status != message {
		reporter.status = message
		reporter.engine.Status(reporter.ctx, reporter.about, message)
	}
}

// Warn leaves a warning, once.
func (reporter *Reporter) Warn(message string) {
	reporter.mutex.Lock()
	defer reporter.mutex.Unlock()
	if !reporter.warned[message] {
		reporter.warned[message] = true
		reporter.engine.Warn(reporter.ctx, reporter.about, message)
	}
}
