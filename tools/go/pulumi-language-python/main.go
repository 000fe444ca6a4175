// The Python language host as the CLI of today expects it: this CLI gives the options of Pulumi.yaml with each request,
// the host beside this program still wants them as flags. It finds the project as the CLI does, reads
// `runtime.options.virtualenv`, and becomes that host.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"gopkg.in/yaml.v3"
)

const host = "pulumi-language-python-host"

var projectFiles = []string{"Pulumi.yaml", "Pulumi.yml", "Pulumi.json"}

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "pulumi-language-python: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	folder, err := os.Getwd()
	if err != nil {
		return err
	}
	flags, err := projectFlags(folder)
	if err != nil {
		return err
	}
	path := filepath.Join(filepath.Dir(self), host)
	// Flags come before the engine's address; what the engine gives as a flag itself wins.
	words := append(append([]string{path}, flags...), os.Args[1:]...)
	return fmt.Errorf("%s: %w", path, syscall.Exec(path, words, os.Environ()))
}

// projectFlags reads the nearest project file at or above folder; outside a project there are no flags.
func projectFlags(folder string) ([]string, error) {
	for {
		for _, name := range projectFiles {
			path := filepath.Join(folder, name)
			content, err := os.ReadFile(path)
			if os.IsNotExist(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			environment, err := virtualenv(content)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			if environment == "" {
				return nil, nil
			}
			return []string{"-root=" + folder, "-virtualenv=" + environment}, nil
		}
		if filepath.Dir(folder) == folder {
			return nil, nil
		}
		folder = filepath.Dir(folder)
	}
}

// virtualenv returns `runtime.options.virtualenv`, empty when there is none; `runtime` may be a mere name.
func virtualenv(project []byte) (string, error) {
	var content struct {
		Runtime yaml.Node `yaml:"runtime"`
	}
	if err := yaml.Unmarshal(project, &content); err != nil {
		return "", err
	}
	if content.Runtime.Kind != yaml.MappingNode {
		return "", nil
	}
	var runtime struct {
		Options struct {
			Virtualenv string `yaml:"virtualenv"`
		} `yaml:"options"`
	}
	err := content.Runtime.Decode(&runtime)
	return runtime.Options.Virtualenv, err
}
