// Writes the SDK of a Pulumi package for one language: what `pulumi package add` asks a language host for. The hosts that
// published modules have are older than that request.
//
//	pulumi package get-schema torchx | sdkgen nodejs sdks/torchx
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	golang "github.com/pulumi/pulumi/pkg/v3/codegen/go"
	"github.com/pulumi/pulumi/pkg/v3/codegen/nodejs"
	"github.com/pulumi/pulumi/pkg/v3/codegen/python"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
)

const tool = "sdkgen"

var generators = map[string]func(*schema.Package) (map[string][]byte, error){
	"nodejs": func(pkg *schema.Package) (map[string][]byte, error) {
		return nodejs.GeneratePackage(tool, pkg, nil, nil, true, noOther{})
	},
	"go": func(pkg *schema.Package) (map[string][]byte, error) {
		return golang.GeneratePackage(tool, pkg, nil)
	},
	"python": func(pkg *schema.Package) (map[string][]byte, error) {
		return python.GeneratePackage(tool, pkg, nil, noOther{})
	},
}

// noOther loads no other package: a schema that refers to one is refused.
type noOther struct{ schema.ReferenceLoader }

func (noOther) LoadPackageV2(_ context.Context, other *schema.PackageDescriptor) (*schema.Package, error) {
	return nil, refused(other)
}

func (noOther) LoadPackageReferenceV2(
	_ context.Context, other *schema.PackageDescriptor,
) (schema.PackageReference, error) {
	return nil, refused(other)
}

func refused(other *schema.PackageDescriptor) error {
	return fmt.Errorf("the schema refers to the package %s; only the Pulumi CLI generates SDKs of such a package", other.Name)
}

func main() {
	if err := run(os.Args[1:], os.Stdin); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", tool, err)
		os.Exit(1)
	}
}

func run(words []string, input io.Reader) error {
	if len(words) != 2 || generators[words[0]] == nil {
		return fmt.Errorf("%q is not a language and a folder; languages: go, nodejs, python; the schema is read from stdin", words)
	}
	var spec schema.PackageSpec
	if err := json.NewDecoder(input).Decode(&spec); err != nil {
		return fmt.Errorf("the schema on stdin: %w", err)
	}
	pkg, diagnostics, err := schema.BindSpec(spec, noOther{}, schema.ValidationOptions{})
	if err != nil {
		return err
	}
	if diagnostics.HasErrors() {
		return diagnostics
	}
	files, err := generators[words[0]](pkg)
	if err != nil {
		return err
	}
	return write(words[1], files)
}

func write(folder string, files map[string][]byte) error {
	for name, content := range files {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
