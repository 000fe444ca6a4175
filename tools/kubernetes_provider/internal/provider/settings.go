package provider

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"torchx-pulumi/kubernetes-provider/internal/change"
	"torchx-pulumi/kubernetes-provider/internal/cluster"
)

const settingPrefix = "kubernetes:config:"

// settings are the provider's configuration, read.
type settings struct {
	target                 cluster.Target
	namespace              string
	clientSide             bool
	deleteUnreachable      bool
	skipUpdateUnreachable  bool
	rejectUnknownResources bool
	mutable                change.Mutability
}

// knownSettings are all that the official provider takes, with their JSON
// types. What means nothing to the stand-in (helm) is taken and not used.
var knownSettings = map[string]string{
	"kubeconfig": "string", "context": "string", "cluster": "string", "clusterIdentifier": "string",
	"namespace": "string", "enableServerSideApply": "boolean", "enableConfigMapMutable": "boolean",
	"enableSecretMutable": "boolean", "suppressDeprecationWarnings": "boolean", "suppressHelmHookWarnings": "boolean",
	"deleteUnreachable": "boolean", "skipUpdateUnreachable": "boolean", "renderYamlToDirectory": "string",
	"kubeClientSettings": "object", "helmReleaseSettings": "object", "rejectUnknownResources": "boolean",
	"strictMode": "boolean", "alwaysRender": "boolean", "enableReplaceCRD": "boolean", "enableDryRun": "boolean",
}

// engineSettings are the engine's own among the provider's properties.
var engineSettings = map[string]bool{"version": true, "pluginDownloadURL": true, "__internal": true}

func settingTypes() map[string]any {
	types := make(map[string]any, len(knownSettings))
	for name, kind := range knownSettings {
		description := map[string]any{"type": kind}
		if kind == "object" {
			description["additionalProperties"] = map[string]any{"$ref": "pulumi.json#/Any"}
		}
		types[name] = description
	}
	return types
}

type clientSettings struct {
	Burst   *int     `json:"burst"`
	QPS     *float64 `json:"qps"`
	Timeout *int     `json:"timeout"`
}

// readSettings reads the configuration; what it leaves open may come from the
// environment, as with the official provider.
func readSettings(variables map[string]string, agent string) (settings, error) {
	text := func(name string) string { return variables[settingPrefix+name] }
	flag := func(name, environment string, fallback bool) bool {
		if value, isSet := variables[settingPrefix+name]; isSet {
			return value == "true"
		}
		if value, isSet := os.LookupEnv(environment); isSet && environment != "" {
			return value == "true"
		}
		return fallback
	}
	client, err := readClientSettings(text("kubeClientSettings"))
	if err != nil {
		return settings{}, err
	}
	return settings{
		namespace: text("namespace"),
		target: cluster.Target{
			Kubeconfig: text("kubeconfig"), Context: text("context"), Cluster: text("cluster"),
			Namespace: text("namespace"), QPS: float32(*client.QPS), Burst: *client.Burst,
			Timeout: time.Duration(*client.Timeout) * time.Second, Agent: agent,
		},
		clientSide:             !flag("enableServerSideApply", "PULUMI_K8S_ENABLE_SERVER_SIDE_APPLY", true),
		deleteUnreachable:      flag("deleteUnreachable", "PULUMI_K8S_DELETE_UNREACHABLE", false),
		skipUpdateUnreachable:  flag("skipUpdateUnreachable", "PULUMI_K8S_SKIP_UPDATE_UNREACHABLE", false),
		rejectUnknownResources: flag("rejectUnknownResources", "", false),
		mutable: change.Mutability{
			ConfigMaps: flag("enableConfigMapMutable", "PULUMI_K8S_ENABLE_CONFIGMAP_MUTABLE", false),
			Secrets:    flag("enableSecretMutable", "PULUMI_K8S_ENABLE_SECRET_MUTABLE", false),
		},
	}, nil
}

// readClientSettings always returns all three values.
func readClientSettings(text string) (clientSettings, error) {
	var client clientSettings
	if strings.TrimSpace(text) != "" {
		if err := json.Unmarshal([]byte(text), &client); err != nil {
			return client, fmt.Errorf("failed to unmarshal kubeClientSettings option: %w", err)
		}
	}
	burst, qps, timeout := 120.0, 50.0, 0.0
	for environment, value := range map[string]*float64{
		"PULUMI_K8S_CLIENT_BURST": &burst, "PULUMI_K8S_CLIENT_QPS": &qps, "PULUMI_K8S_CLIENT_TIMEOUT": &timeout,
	} {
		if given := os.Getenv(environment); given != "" {
			parsed, err := strconv.ParseFloat(given, 64)
			if err != nil {
				return client, fmt.Errorf("invalid value specified for %s: %w", environment, err)
			}
			*value = parsed
		}
	}
	if client.Burst == nil {
		whole := int(burst)
		client.Burst = &whole
	}
	if client.QPS == nil {
		client.QPS = &qps
	}
	if client.Timeout == nil {
		whole := int(timeout)
		client.Timeout = &whole
	}
	return client, nil
}
