// Package await waits for an object to become ready or to be gone, and says on
// the way what it waits for. What "ready" means for a kind is a pure function
// of the live object, one file a kind.
package await
