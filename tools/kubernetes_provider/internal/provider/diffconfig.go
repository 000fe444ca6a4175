package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"torchx-pulumi/kubernetes-provider/internal/cluster"
)

const clusterIdentifier = "clusterIdentifier"

// targetSettings decide together which cluster is meant.
var targetSettings = []resource.PropertyKey{"kubeconfig", "context", "cluster"}

// DiffConfig replaces the provider, and with it everything it made, when the
// active cluster of the kubeconfig is another one. A clusterIdentifier, once
// set, decides alone.
func (p *Provider) DiffConfig(
	_ context.Context, request *pulumirpc.DiffRequest,
) (*pulumirpc.DiffResponse, error) {
	old, err := unmarshal("old settings", request.GetOlds())
	if err != nil {
		return nil, err
	}
	wanted, err := unmarshal("settings", request.GetNews())
	if err != nil {
		return nil, fmt.Errorf("DiffConfig failed because of malformed resource inputs: %w", err)
	}
	difference := old.Diff(wanted)
	if difference == nil {
		return &pulumirpc.DiffResponse{Changes: pulumirpc.DiffResponse_DIFF_NONE}, nil
	}
	changed := keyNames(difference.ChangedKeys())
	replaced, err := replacedSettings(old, wanted, changed)
	if err != nil {
		return nil, err
	}
	switch {
	case difference.Updated(clusterIdentifier):
		replaced = append(replaced, clusterIdentifier)
	case difference.Same(clusterIdentifier) && wanted.HasValue(clusterIdentifier):
		replaced = nil
	}
	return &pulumirpc.DiffResponse{Changes: pulumirpc.DiffResponse_DIFF_SOME, Diffs: changed, Replaces: replaced}, nil
}

func replacedSettings(old, wanted resource.PropertyMap, changed []string) ([]string, error) {
	for _, key := range targetSettings {
		// What is not yet known may be another cluster: assume it is.
		if wanted[key].ContainsUnknowns() {
			return []string{string(key)}, nil
		}
	}
	before, hadBefore, err := activeCluster(old)
	if err != nil {
		return nil, err
	}
	after, hasAfter, err := activeCluster(wanted)
	if err != nil {
		return nil, err
	}
	if !hadBefore || !hasAfter || reflect.DeepEqual(before, after) {
		return nil, nil
	}
	var replaced []string
	for _, key := range targetSettings {
		if slices.Contains(changed, string(key)) {
			replaced = append(replaced, string(key))
		}
	}
	return replaced, nil
}

// activeCluster finds the cluster that the settings choose in their
// kubeconfig; false when that cannot be told from the settings alone.
func activeCluster(given resource.PropertyMap) (*clientcmdapi.Cluster, bool, error) {
	config, err := givenKubeconfig(plain(given["kubeconfig"]))
	if err != nil || config == nil {
		return nil, false, err
	}
	current := config.CurrentContext
	if chosen := plain(given["context"]); chosen.IsString() {
		current = chosen.StringValue()
	}
	active := config.Contexts[current]
	if active == nil {
		return nil, false, nil
	}
	name := active.Cluster
	if chosen := plain(given["cluster"]); chosen.IsString() {
		name = chosen.StringValue()
	}
	found := config.Clusters[name]
	return found, found != nil, nil
}

func givenKubeconfig(given resource.PropertyValue) (*clientcmdapi.Config, error) {
	var text string
	switch {
	case given.IsNull():
		return nil, nil
	case given.IsString() && given.StringValue() == "":
		return nil, nil
	case given.IsString():
		text = given.StringValue()
	case given.IsObject():
		raw, err := json.Marshal(given.ObjectValue().Mappable())
		if err != nil {
			return nil, fmt.Errorf("failed to unmarshal kubeconfig: %w", err)
		}
		text = string(raw)
	default:
		return nil, fmt.Errorf("unexpected kubeconfig format, type: %v", given.TypeString())
	}
	config, err := cluster.ParseKubeconfig(text)
	if err != nil {
		return nil, fmt.Errorf("failed to parse kubeconfig: %w", err)
	}
	// A path and its contents are the same cluster.
	for _, found := range config.Clusters {
		found.LocationOfOrigin = ""
	}
	return config, nil
}

func plain(value resource.PropertyValue) resource.PropertyValue {
	if value.IsSecret() {
		return plain(value.SecretValue().Element)
	}
	return value
}

func keyNames(keys []resource.PropertyKey) []string {
	names := make([]string, len(keys))
	for index, key := range keys {
		names[index] = string(key)
	}
	slices.Sort(names)
	return names
}
