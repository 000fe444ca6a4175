package provider

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil/rpcerror"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"torchx-pulumi/kubernetes-provider/internal/await"
)

// unreachableError refuses an operation that needs the cluster.
func (p *Provider) unreachableError() error {
	return fmt.Errorf("configured Kubernetes cluster is unreachable: %s", p.unreachable)
}

// initFailed is an error that carries state: the object exists, and the engine
// is to remember it although the operation failed.
func initFailed(id string, err error, state, inputs *structpb.Struct) error {
	reasons := []string{err.Error()}
	if incomplete := (*await.Incomplete)(nil); errors.As(err, &incomplete) {
		reasons = append(reasons, incomplete.Reasons...)
	}
	return rpcerror.WithDetails(rpcerror.New(codes.Unknown, err.Error()), &pulumirpc.ErrorResourceInitFailed{
		Id: id, Properties: state, Inputs: inputs, Reasons: reasons,
	})
}

// withReasons puts into one text what an error saw on the way.
func withReasons(err error) error {
	var incomplete *await.Incomplete
	if !errors.As(err, &incomplete) || len(incomplete.Reasons) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", err, strings.Join(incomplete.Reasons, "; "))
}

// isMissingNamespace tells whether the namespace of an object is not there
// yet; a preview cannot do more then.
func isMissingNamespace(err error) bool {
	var refused *apierrors.StatusError
	if !apierrors.IsNotFound(err) || !errors.As(err, &refused) {
		return false
	}
	details := refused.Status().Details
	return details != nil && details.Kind == "namespaces"
}

// isDryRunUnsupported tells whether a webhook or an old server cannot be asked
// without being changed.
func isDryRunUnsupported(err error) bool {
	var refused *apierrors.StatusError
	if !errors.As(err, &refused) || refused.Status().Code != http.StatusBadRequest {
		return false
	}
	message := refused.Status().Message
	return strings.Contains(message, "does not support dry run") ||
		message == "the dryRun alpha feature is disabled" || message == "the dryRun beta feature is disabled"
}
