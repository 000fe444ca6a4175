#!/usr/bin/env bash
# Docker checks a line of `.dockerignore` by one grammar and applies it by another one: some lines match what nobody meant.
#
# Version: github.com/moby/patternmatcher 0.6.1, which Docker and BuildKit use.
# Guess: the documented rules of Go's filepath.Match decide, in which `|` is a letter like any other, `\d` is the letter d,
#   and `[a*]` is one of the letters a and *.
# Behavior: a line is checked with filepath.Match and then made into a regular expression that escapes less.
#   `a|b*` matches every name that begins with an a or has a b in its last part; `\d` matches digits; `[a*]` matches none.
# Matters: files are missing from images, or are in them, without a message.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat > stated <<'END'
a|b*: docker [a.txt attic/x ab zb a|b1], filepath.Match [a|b1]
\d: docker [5], filepath.Match [d]
[a*]: docker [], filepath.Match [a *]
END

cat > go.mod <<'END'
module findings

go 1.24.0

require github.com/moby/patternmatcher v0.6.1
END
cat > main.go <<'END'
package main

import (
	"fmt"
	"path/filepath"

	"github.com/moby/patternmatcher"
)

func main() {
	for _, line := range []struct {
		pattern string
		names   []string
	}{
		{"a|b*", []string{"a.txt", "attic/x", "ab", "zb", "a|b1", "c"}},
		{`\d`, []string{"d", "5"}},
		{"[a*]", []string{"a", "*"}},
	} {
		matcher, err := patternmatcher.New([]string{line.pattern})
		if err != nil {
			panic(err)
		}
		docker, documented := []string{}, []string{}
		for _, name := range line.names {
			if out, err := matcher.MatchesOrParentMatches(name); err != nil {
				panic(err)
			} else if out {
				docker = append(docker, name)
			}
			if out, err := filepath.Match(line.pattern, name); err != nil {
				panic(err)
			} else if out {
				documented = append(documented, name)
			}
		}
		fmt.Printf("%s: docker %v, filepath.Match %v\n", line.pattern, docker, documented)
	}
}
END
GOFLAGS=-mod=mod go run . | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
