package cluster

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"torchx-pulumi/kubernetes-provider/internal/object"
)

// Cluster is a connection to one API server. It is safe for use by many
// operations at once.
type Cluster struct {
	objects dynamic.Interface
	kinds   *kindTable
}

// Serves tells whether the API server knows the kind.
func (cluster *Cluster) Serves(gvk schema.GroupVersionKind) bool {
	_, err := cluster.kinds.find(gvk)
	return err == nil
}

// IsNamespaced tells whether objects of the kind live in namespaces. The error
// is meta.IsNoMatchError for a kind that the cluster does not serve.
func (cluster *Cluster) IsNamespaced(gvk schema.GroupVersionKind) (bool, error) {
	mapping, err := cluster.kinds.find(gvk)
	if err != nil {
		return false, err
	}
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

// KindsChanged says that a CustomResourceDefinition was written.
func (cluster *Cluster) KindsChanged() { cluster.kinds.forget() }

// Client returns the way to the objects of this object's kind and namespace.
func (cluster *Cluster) Client(obj *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	return cluster.ClientIn(object.GVK(obj), obj.GetNamespace())
}

// ClientIn returns the way to the objects of a kind; an empty namespace is
// "default" for a kind that has namespaces.
func (cluster *Cluster) ClientIn(gvk schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	mapping, err := cluster.kinds.find(gvk)
	if err != nil {
		return nil, err
	}
	resource := cluster.objects.Resource(mapping.Resource)
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return resource, nil
	}
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return resource.Namespace(namespace), nil
}

// Get reads the live object of the same kind, namespace and name.
func (cluster *Cluster) Get(
	ctx context.Context, obj *unstructured.Unstructured, name string,
) (*unstructured.Unstructured, error) {
	client, err := cluster.Client(obj)
	if err != nil {
		return nil, err
	}
	return client.Get(ctx, name, metav1.GetOptions{})
}

// Delete asks for deletion and returns at once; what is absent is an error
// that apierrors.IsNotFound knows.
func (cluster *Cluster) Delete(ctx context.Context, obj *unstructured.Unstructured, name string, policy metav1.DeletionPropagation) error {
	client, err := cluster.Client(obj)
	if err != nil {
		return err
	}
	return client.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy})
}
