// Package provider serves Pulumi's ResourceProvider protocol for any kind of a
// Kubernetes cluster, with the semantics of the official provider 4.28: one
// file an operation. What objects mean is in package object, what differs in
// change, what is written in cluster, what is waited for in await.
package provider
