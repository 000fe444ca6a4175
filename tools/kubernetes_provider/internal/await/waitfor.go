package await

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"
)

// parseWaitFor reads the annotation pulumi.com/waitFor: "jsonpath=...",
// "condition=...", or a JSON array of them, all of which must hold.
func parseWaitFor(text string) (check, error) {
	var wishes []string
	if err := json.Unmarshal([]byte(text), &wishes); err != nil {
		wishes = []string{text}
	}
	if len(wishes) == 0 {
		return nil, errors.New("at least one condition must be specified")
	}
	checks := make([]func(*unstructured.Unstructured) bool, len(wishes))
	for index, wish := range wishes {
		parsed, err := parseWish(wish)
		if err != nil {
			return nil, err
		}
		checks[index] = parsed
	}
	return func(_ context.Context, live *unstructured.Unstructured) (readiness, error) {
		for index, holds := range checks {
			if !holds(live) {
				return readiness{waitingFor: "Waiting for " + wishes[index]}, nil
			}
		}
		return readiness{ready: true}, nil
	}, nil
}

func parseWish(wish string) (func(*unstructured.Unstructured) bool, error) {
	kind, rest, _ := strings.Cut(wish, "=")
	switch kind {
	case "jsonpath":
		return parseJSONPath(rest)
	case "condition":
		return parseCondition(rest), nil
	}
	return nil, fmt.Errorf(`expected a "jsonpath=" or "condition=" prefix, got %q`, wish)
}

// parseJSONPath reads "{.status.phase}=Running", or without a value, which
// only asks for the field to be there.
func parseJSONPath(text string) (func(*unstructured.Unstructured) bool, error) {
	expression, value, hasValue := text, "", false
	if end := strings.LastIndex(text, "}="); end >= 0 {
		expression, value, hasValue = text[:end+1], strings.Trim(text[end+2:], `"'`), true
	}
	if !strings.HasPrefix(expression, "{") || !strings.HasSuffix(expression, "}") {
		return nil, fmt.Errorf("jsonpath %q: expected {.path} or {.path}=value", text)
	}
	if err := jsonpath.New("waitFor").Parse(expression); err != nil {
		return nil, fmt.Errorf("jsonpath %q: %w", text, err)
	}
	return func(live *unstructured.Unstructured) bool {
		// A template keeps state while it runs, so every look has its own.
		template := jsonpath.New("waitFor")
		if err := template.Parse(expression); err != nil {
			return false
		}
		var found bytes.Buffer
		if err := template.Execute(&found, live.Object); err != nil {
			return false // the field is not there yet
		}
		return !hasValue && found.Len() > 0 || hasValue && found.String() == value
	}, nil
}

// parseCondition reads "Ready" or "Ready=False".
func parseCondition(text string) func(*unstructured.Unstructured) bool {
	name, wanted, hasStatus := strings.Cut(text, "=")
	if !hasStatus {
		wanted = "True"
	}
	return func(live *unstructured.Unstructured) bool {
		conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
		for _, item := range conditions {
			condition, isMap := item.(map[string]any)
			if !isMap {
				continue
			}
			kind, _ := condition["type"].(string)
			status, _ := condition["status"].(string)
			if strings.EqualFold(kind, name) {
				return strings.EqualFold(status, wanted) && isCurrent(live, condition)
			}
		}
		return false
	}
}

// isCurrent tells whether a condition speaks of the object's latest generation.
func isCurrent(live *unstructured.Unstructured, condition map[string]any) bool {
	observed, found, _ := unstructured.NestedInt64(condition, "observedGeneration")
	if !found {
		observed, found, _ = unstructured.NestedInt64(live.Object, "status", "observedGeneration")
	}
	return !found || observed >= live.GetGeneration()
}
