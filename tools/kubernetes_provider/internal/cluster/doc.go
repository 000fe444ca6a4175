// Package cluster is the only one that writes to the API server: connection,
// discovery, server-side and client-side apply, field managers, deletion. It
// knows nothing of Pulumi's protocol.
package cluster
