// Command pulumi-resource-kubernetes stands in for the official Kubernetes
// provider of Pulumi on machines that cannot download it. It is for demos and
// tests; where the official plugin is installed, use that.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/util/logging"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"

	"torchx-pulumi/kubernetes-provider/internal/engine"
	"torchx-pulumi/kubernetes-provider/internal/provider"
)

// version is that of the SDK whose requests are answered, which is what the
// engine compares; the build tag says that this is no official plugin, and
// whose semantics it has.
const version = "4.34.2+stand-in.for.4.33"

// pulse is how often the provider looks whether its engine is still there: a
// killed engine cannot say goodbye.
const pulse = 5 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "pulumi-resource-kubernetes (stand-in): %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	showVersion := flag.Bool("version", false, "print the version and exit")
	// The engine passes it to every plugin; those for logs are the SDK's.
	flag.String("tracing", "", "accepted, not used")
	flag.Parse()
	if *showVersion {
		fmt.Println(version)
		return nil
	}
	// The engine hands its own verbosity down with --logflow. The SDK of provider
	// 4.33 logs to stderr, and knows of no other receiver.
	if err := os.Unsetenv("PULUMI_LOG_OTLP_ENDPOINT"); err != nil {
		return fmt.Errorf("choosing where to log: %w", err)
	}
	logging.InitLogging(false, 0, false)
	if flag.NArg() > 1 {
		return errors.New("expected at most one argument: the engine's address")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	var host *engine.Engine
	if flag.NArg() == 1 {
		var err error
		if host, err = engine.Connect(flag.Arg(0)); err != nil {
			return err
		}
		if err := rpcutil.Healthcheck(ctx, flag.Arg(0), pulse, stop); err != nil {
			return fmt.Errorf("watching the engine: %w", err)
		}
	}
	return serve(ctx, host)
}

// serve answers until the context ends. The engine reads the port from the
// first line of stdout.
func serve(ctx context.Context, host *engine.Engine) error {
	cancel := make(chan bool)
	server := provider.New(version, host)
	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Cancel: cancel,
		Init: func(registrar *grpc.Server) error {
			pulumirpc.RegisterResourceProviderServer(registrar, server)
			return nil
		},
	})
	if err != nil {
		return err
	}
	fmt.Println(handle.Port)
	<-ctx.Done()
	if _, err := server.Cancel(context.Background(), nil); err != nil {
		return err
	}
	close(cancel)
	select {
	case err := <-handle.Done:
		return err
	case <-time.After(pulse):
		return nil // an engine that is gone does not close its calls
	}
}
