package cluster

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
)

// Target says which cluster to talk to and how fast.
type Target struct {
	// Kubeconfig is a path or the contents of a file; "" means the ambient
	// configuration (KUBECONFIG, ~/.kube/config, in-cluster).
	Kubeconfig string
	Context    string
	Cluster    string
	Namespace  string
	QPS        float32
	Burst      int
	// Timeout bounds a single request; 0 means no bound.
	Timeout time.Duration
	Agent   string
}

// InvalidKubeconfigError is a kubeconfig that cannot be parsed.
type InvalidKubeconfigError struct{ Cause error }

func (e InvalidKubeconfigError) Error() string { return e.Cause.Error() }
func (e InvalidKubeconfigError) Unwrap() error { return e.Cause }

// UnreachableError is an API server that does not answer discovery.
type UnreachableError struct{ Cause error }

func (e UnreachableError) Error() string { return e.Cause.Error() }
func (e UnreachableError) Unwrap() error { return e.Cause }

// Connect loads the client configuration and reads which kinds the API server
// serves. The namespace, the configured one or the context's, is returned also
// when the cluster cannot be reached.
func Connect(target Target) (connected *Cluster, namespace string, err error) {
	// client-go's own log would end up, unfiltered, in the engine's output.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)

	loader, err := load(target)
	if err != nil {
		return nil, target.Namespace, InvalidKubeconfigError{err}
	}
	namespace, _, err = loader.Namespace()
	if err != nil {
		namespace = target.Namespace
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, namespace, err
	}
	config.QPS, config.Burst, config.Timeout = target.QPS, target.Burst, target.Timeout
	config.UserAgent = target.Agent
	config.WarningHandler = rest.NoWarnings{}
	connected, err = open(config)
	return connected, namespace, err
}

func open(config *rest.Config) (*Cluster, error) {
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	catalogue, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a discovery client: %w", err)
	}
	connected := &Cluster{objects: objects, kinds: newKindTable(catalogue)}
	if err := connected.kinds.refresh(); err != nil {
		return nil, UnreachableError{err}
	}
	return connected, nil
}

func load(target Target) (clientcmd.ClientConfig, error) {
	overrides := &clientcmd.ConfigOverrides{
		CurrentContext: target.Context,
		Context:        clientcmdapi.Context{Cluster: target.Cluster, Namespace: target.Namespace},
	}
	if target.Kubeconfig == "" {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides), nil
	}
	config, err := ParseKubeconfig(target.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return clientcmd.NewDefaultClientConfig(*config, overrides), nil
}

// ParseKubeconfig reads a kubeconfig that is given as a path, where "~" is the
// home directory, or as its contents.
func ParseKubeconfig(pathOrContents string) (*clientcmdapi.Config, error) {
	path := expandHome(pathOrContents)
	if _, err := os.Stat(path); err != nil {
		return clientcmd.Load([]byte(pathOrContents))
	}
	// LoadFromFile also resolves the certificate paths relative to the file.
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, err
	}
	return config, clientcmd.ResolveLocalPaths(config)
}

func expandHome(path string) string {
	if path != "~" && !strings.HasPrefix(path, "~/") {
		return path
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return path
	}
	return filepath.Join(home, strings.TrimPrefix(path, "~"))
}
