package cluster

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
)

// refreshPause keeps many waiting resources from asking for the list of kinds
// all at once.
const refreshPause = time.Second

// kindTable maps kinds to the API server's resources. It is read when the
// provider is configured and again when a kind is not in it: a program may
// create a CustomResourceDefinition and then objects of it.
type kindTable struct {
	catalogue discovery.DiscoveryInterface

	mutex     sync.Mutex
	mapper    meta.RESTMapper
	refreshed time.Time
}

func newKindTable(catalogue discovery.DiscoveryInterface) *kindTable {
	return &kindTable{catalogue: catalogue}
}

func (table *kindTable) refresh() error {
	table.mutex.Lock()
	defer table.mutex.Unlock()
	return table.refreshLocked()
}

func (table *kindTable) refreshLocked() error {
	// One broken aggregated API must not hide the others: the error is only
	// fatal when nothing at all was read.
	groups, err := restmapper.GetAPIGroupResources(table.catalogue)
	if err != nil && len(groups) == 0 {
		return err
	}
	table.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	table.refreshed = time.Now()
	return nil
}

// find returns the resource of a kind; meta.IsNoMatchError tells when the
// cluster does not serve it.
func (table *kindTable) find(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	table.mutex.Lock()
	defer table.mutex.Unlock()
	mapping, err := table.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err == nil || !meta.IsNoMatchError(err) || time.Since(table.refreshed) < refreshPause {
		return mapping, err
	}
	if err := table.refreshLocked(); err != nil {
		return nil, err
	}
	return table.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
}

// forget makes the next look-up of an unknown kind ask the server again.
func (table *kindTable) forget() {
	table.mutex.Lock()
	defer table.mutex.Unlock()
	table.refreshed = time.Time{}
}
