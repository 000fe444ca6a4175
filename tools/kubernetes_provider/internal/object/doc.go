// Package object holds pure functions on Kubernetes objects and on the
// property maps that Pulumi sends for them: conversion, naming, annotations,
// pruning and normal form. Nothing here talks to a cluster or to the engine.
package object
