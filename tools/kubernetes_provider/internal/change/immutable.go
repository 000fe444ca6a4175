package change

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// forceNewByKind names what Kubernetes (or the official provider) holds to be
// immutable, in every version of the group.
var forceNewByKind = map[schema.GroupKind][]string{
	{Kind: "Pod"}:                   podSpec,
	{Kind: "Service"}:               {"spec.clusterIP"},
	{Kind: "ResourceQuota"}:         {"spec.scopes"},
	{Kind: "PersistentVolumeClaim"}: {"spec.accessModes", "spec.selector", "spec.storageClassName", "spec.volumeName"},
	{Kind: "PersistentVolume"}: {
		"spec.awsElasticBlockStore", "spec.azureDisk", "spec.azureFile", "spec.cephfs", "spec.cinder", "spec.csi",
		"spec.fc", "spec.flexVolume", "spec.flocker", "spec.gcePersistentDisk", "spec.glusterfs", "spec.hostPath",
		"spec.iscsi", "spec.local", "spec.nfs", "spec.photonPersistentDisk", "spec.portworxVolume", "spec.quobyte",
		"spec.rbd", "spec.scaleIO", "spec.storageos", "spec.vsphereVolume",
	},
	{Group: "apps", Kind: "DaemonSet"}:  {"spec.selector"},
	{Group: "apps", Kind: "Deployment"}: {"spec.selector"},
	{Group: "apps", Kind: "StatefulSet"}: {
		"spec.podManagementPolicy", "spec.revisionHistoryLimit", "spec.selector", "spec.serviceName",
		"spec.volumeClaimTemplates",
	},
	{Group: "batch", Kind: "Job"}: {"spec.completions", "spec.parallelism", "spec.selector", "spec.template"},

	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}: {"roleRef"},
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:        {"roleRef"},
	{Group: "storage.k8s.io", Kind: "StorageClass"}:                  {"parameters", "provisioner"},
}

var podSpec = slices.Concat(
	[]string{
		"spec.affinity", "spec.automountServiceAccountToken", "spec.dnsConfig", "spec.dnsPolicy",
		"spec.enableServiceLinks", "spec.hostAliases", "spec.hostIPC", "spec.hostNetwork", "spec.hostPID",
		"spec.hostname", "spec.imagePullSecrets", "spec.nodeName", "spec.nodeSelector", "spec.overhead",
		"spec.preemptionPolicy", "spec.priority", "spec.priorityClassName", "spec.readinessGates",
		"spec.restartPolicy", "spec.runtimeClassName", "spec.schedulerName", "spec.securityContext",
		"spec.serviceAccount", "spec.serviceAccountName", "spec.shareProcessNamespace", "spec.subdomain",
		"spec.terminationGracePeriodSeconds", "spec.volumes",
	},
	containerFields("spec.containers[*]."), containerFields("spec.initContainers[*]."),
)

func containerFields(prefix string) []string {
	fields := []string{
		"args", "command", "env", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "ports", "readinessProbe",
		"resources", "securityContext", "stdin", "stdinOnce", "terminationMessagePath", "terminationMessagePolicy",
		"tty", "volumeDevices", "volumeMounts", "workingDir",
	}
	for index, field := range fields {
		fields[index] = prefix + field
	}
	return fields
}
