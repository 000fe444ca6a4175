package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestFlagsOfTheNearestProject(t *testing.T) {
	for name, c := range map[string]struct {
		project string
		want    []string
	}{
		"relative":     {"name: a\nruntime: {name: python, options: {virtualenv: .venv}}\nmain: stacks/\n", []string{"-virtualenv=.venv"}},
		"none":         {"name: a\nruntime: {name: python}\n", nil},
		"a mere name":  {"name: a\nruntime: python\n", nil},
		"other option": {"name: a\nruntime: {name: python, options: {toolchain: uv}}\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			program := filepath.Join(root, "stacks")
			if err := os.Mkdir(program, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "Pulumi.yaml"), []byte(c.project), 0o644); err != nil {
				t.Fatal(err)
			}
			got, err := projectFlags(program)
			if err != nil {
				t.Fatal(err)
			}
			want := c.want
			if want != nil {
				want = append([]string{"-root=" + root}, want...)
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestBrokenProjectIsNamed(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "Pulumi.yaml"), []byte("runtime: {"), 0o644); err != nil {
		t.Fatal(err)
	}
	if flags, err := projectFlags(root); err == nil {
		t.Errorf("got %v and no error", flags)
	}
}
