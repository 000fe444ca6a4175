package change

import (
	"reflect"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"

	"torchx-pulumi/kubernetes-provider/internal/object"
)

// Change is one property that differs.
type Change struct {
	Path resource.PropertyPath
	// Kind is ADD, DELETE or UPDATE.
	Kind pulumirpc.PropertyDiff_Kind
	// New is the wanted value, nil for a property that goes.
	New any
}

// Compare lists the properties in which the wanted tree differs from the old
// one. A map or a list that is on one side only is one change, not one per
// leaf. List elements are compared by position.
func Compare(old, wanted map[string]any) []Change {
	var found []Change
	compareMaps(nil, old, wanted, &found)
	return found
}

func compareMaps(path resource.PropertyPath, old, wanted map[string]any, found *[]Change) {
	for key, value := range wanted {
		if previous, existed := old[key]; existed {
			compareValues(extend(path, key), previous, value, found)
		} else {
			*found = append(*found, Change{extend(path, key), pulumirpc.PropertyDiff_ADD, value})
		}
	}
	for key := range old {
		if _, stays := wanted[key]; !stays {
			*found = append(*found, Change{extend(path, key), pulumirpc.PropertyDiff_DELETE, nil})
		}
	}
}

func compareLists(path resource.PropertyPath, old, wanted []any, found *[]Change) {
	for index := range max(len(old), len(wanted)) {
		switch at := extend(path, index); {
		case index >= len(old):
			*found = append(*found, Change{at, pulumirpc.PropertyDiff_ADD, wanted[index]})
		case index >= len(wanted):
			*found = append(*found, Change{at, pulumirpc.PropertyDiff_DELETE, nil})
		default:
			compareValues(at, old[index], wanted[index], found)
		}
	}
}

func compareValues(path resource.PropertyPath, old, wanted any, found *[]Change) {
	switch wanted := wanted.(type) {
	case map[string]any:
		if old, same := old.(map[string]any); same {
			compareMaps(path, old, wanted, found)
			return
		}
	case []any:
		if old, same := old.([]any); same {
			compareLists(path, old, wanted, found)
			return
		}
	}
	if object.HasUnknownRoot(wanted) || !equal(old, wanted) {
		*found = append(*found, Change{path, pulumirpc.PropertyDiff_UPDATE, wanted})
	}
}

// equal compares leaves; numbers by value, since the cluster's come as
// integers and the program's as floats.
func equal(old, wanted any) bool {
	oldNumber, oldIsNumber := number(old)
	newNumber, newIsNumber := number(wanted)
	if oldIsNumber && newIsNumber {
		return oldNumber == newNumber
	}
	return reflect.DeepEqual(old, wanted)
}

func number(value any) (float64, bool) {
	switch value := value.(type) {
	case int64:
		return float64(value), true
	case int:
		return float64(value), true
	case float64:
		return value, true
	}
	return 0, false
}

// extend never shares its result's memory with a sibling's path.
func extend(path resource.PropertyPath, step any) resource.PropertyPath {
	extended := make(resource.PropertyPath, len(path), len(path)+1)
	copy(extended, path)
	return append(extended, step)
}
