package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/protobuf/types/known/emptypb"

	"torchx-pulumi/kubernetes-provider/internal/cluster"
	"torchx-pulumi/kubernetes-provider/internal/engine"
)

// Provider is the server. Operations run at the same time; what Configure sets
// does not change while they run.
type Provider struct {
	pulumirpc.UnimplementedResourceProviderServer

	version string
	// running ends when the engine cancels.
	running context.Context
	cancel  context.CancelFunc

	mutex  sync.RWMutex
	engine *engine.Engine

	settings settings
	cluster  *cluster.Cluster
	// unreachable says why there is no cluster, "" when there is one.
	unreachable string
	// acceptsSecrets is the engine's word that secrets may be marked.
	acceptsSecrets bool
}

// New makes a provider that has not been configured. The engine may be nil
// until it attaches.
func New(version string, host *engine.Engine) *Provider {
	running, cancel := context.WithCancel(context.Background())
	return &Provider{version: version, engine: host, running: running, cancel: cancel}
}

// Handshake tells the engine what it may send.
func (p *Provider) Handshake(
	_ context.Context, request *pulumirpc.ProviderHandshakeRequest,
) (*pulumirpc.ProviderHandshakeResponse, error) {
	if address := request.GetEngineAddress(); address != "" {
		if err := p.attach(address); err != nil {
			return nil, err
		}
	}
	return &pulumirpc.ProviderHandshakeResponse{AcceptSecrets: true, SupportsAutonamingConfiguration: true}, nil
}

// Attach connects a provider that was started on its own to an engine.
func (p *Provider) Attach(_ context.Context, request *pulumirpc.PluginAttach) (*emptypb.Empty, error) {
	if err := p.attach(request.GetAddress()); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

func (p *Provider) attach(address string) error {
	host, err := engine.Connect(address)
	if err != nil {
		return err
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.engine = host
	return nil
}

func (p *Provider) host() *engine.Engine {
	p.mutex.RLock()
	defer p.mutex.RUnlock()
	return p.engine
}

// GetPluginInfo tells the version, whose build tag names the stand-in. The
// engine warns when it is lower than the SDK's.
func (p *Provider) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: p.version}, nil
}

// GetSchema describes the package without its thousand types: SDKs bring
// their own, and nothing is generated from a stand-in.
func (p *Provider) GetSchema(
	_ context.Context, request *pulumirpc.GetSchemaRequest,
) (*pulumirpc.GetSchemaResponse, error) {
	if version := request.GetVersion(); version != 0 {
		return nil, fmt.Errorf("unsupported schema version %d", version)
	}
	schema, err := json.Marshal(map[string]any{
		"name": "kubernetes", "version": p.version,
		"description": "Stand-in for the official Kubernetes provider; it has no resource types in its schema.",
		"provider":    map[string]any{"inputProperties": settingTypes()},
	})
	if err != nil {
		return nil, fmt.Errorf("writing the schema: %w", err)
	}
	return &pulumirpc.GetSchemaResponse{Schema: string(schema)}, nil
}

// GetMapping has no mapping to offer.
func (p *Provider) GetMapping(
	context.Context, *pulumirpc.GetMappingRequest,
) (*pulumirpc.GetMappingResponse, error) {
	return &pulumirpc.GetMappingResponse{}, nil
}

// Cancel ends all operations; each returns the state it has reached.
func (p *Provider) Cancel(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	p.cancel()
	return &emptypb.Empty{}, nil
}

// operation returns a context that ends with the call or when the engine
// cancels.
func (p *Provider) operation(call context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(call)
	stop := context.AfterFunc(p.running, cancel)
	return ctx, func() { stop(); cancel() }
}
