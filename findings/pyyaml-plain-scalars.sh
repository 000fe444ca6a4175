#!/usr/bin/env bash
# PyYAML writes texts without quotes that kubectl then reads as numbers and booleans, keys included.
#
# Versions: PyYAML 6.0.3, sigs.k8s.io/yaml 1.6.0, which kubectl and Kubernetes' servers use.
# Guess: yaml.safe_dump puts quotes around each text that is something else without them, as it does for "on" and "1.5".
# Behavior: it does so by its own reading, which is narrower: 1e-4, 0o17, 09, y and n stay plain. The other side reads
#   numbers and booleans, and a key n becomes "false".
# Matters: an env value "1e-4" of a pod is refused as a number; "09" in a ConfigMap too; the key n is lost.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat > stated <<'END'
written by PyYAML
- 'on': 'on'
- decimal: '1.5'
- rate: 1e-4
- mode: 0o17
- month: 09
- answer: y
- n: n
read by PyYAML: the same
read by Kubernetes: [{"on":"on"},{"decimal":"1.5"},{"rate":0.0001},{"mode":15},{"month":9},{"answer":true},{"false":false}]
END

cat > go.mod <<'END'
module findings

go 1.24.0

require sigs.k8s.io/yaml v1.6.0
END
cat > main.go <<'END'
package main

import (
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	json, err := yaml.YAMLToJSON(text)
	if err != nil {
		panic(err)
	}
	fmt.Println("read by Kubernetes:", string(json))
}
END

cat > write.py <<'END'
import pathlib

import yaml

values = [{"on": "on"}, {"decimal": "1.5"}, {"rate": "1e-4"}, {"mode": "0o17"}, {"month": "09"}, {"answer": "y"}, {"n": "n"}]
text = yaml.safe_dump(values)
pathlib.Path("written.yaml").write_text(text)
print(f"written by PyYAML\n{text}read by PyYAML:", "the same" if yaml.safe_load(text) == values else "something else")
END

python3 -m venv --without-pip venv
python3 -m pip --python venv/bin/python install --quiet --no-compile PyYAML==6.0.3
{
    venv/bin/python write.py
    GOFLAGS=-mod=mod go run . < written.yaml
} | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
