// Reads cases as lines of JSON, each a .dockerignore file and the paths of files, and writes what Docker makes of them.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// question is of bytes, in base64: names on a disk are no UTF-8 always, and texts in JSON are.
type question struct {
	Rules []byte   `json:"rules"`
	Files [][]byte `json:"files"`
}

type answer struct {
	// Error says why the rules are refused, also by a pattern that no path was tried with.
	Error string `json:"error,omitempty"`
	// Ignored has for each file the verdicts for the folders above it, and for itself.
	Ignored [][]bool `json:"ignored"`
	// Sent says for each file whether the docker command sends it.
	Sent []bool `json:"sent"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			fail(err)
		}
		found, err := judge(asked)
		if err != nil {
			found = answer{Error: err.Error()}
		}
		if err := out.Encode(found); err != nil {
			fail(err)
		}
	}
	if err := lines.Err(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func judge(asked question) (answer, error) {
	patterns, err := ignorefile.ReadAll(bytes.NewReader(asked.Rules))
	if err != nil {
		return answer{}, err
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		return answer{}, err
	}
	for _, pattern := range matcher.Patterns() {
		// A pattern is compiled when it is first tried. Behind a pattern that matches all, `!` is tried with any path.
		tried := []string{pattern.String()}
		if pattern.Exclusion() {
			tried = []string{"**", "!" + pattern.String()}
		}
		alone, err := patternmatcher.New(tried)
		if err != nil {
			return answer{}, err
		}
		if _, err := alone.MatchesOrParentMatches("x"); err != nil {
			return answer{}, fmt.Errorf("%s: %w", pattern, err)
		}
	}
	var found answer
	for _, file := range asked.Files {
		var verdicts []bool
		var info patternmatcher.MatchInfo
		ignored, entered := false, true
		for _, each := range append(foldersAbove(string(file)), string(file)) {
			entered = entered && !(ignored && skips(matcher, path.Dir(each)))
			if ignored, info, err = matcher.MatchesUsingParentResults(each, info); err != nil {
				return answer{}, err
			}
			verdicts = append(verdicts, ignored)
		}
		found.Ignored = append(found.Ignored, verdicts)
		found.Sent = append(found.Sent, entered && !ignored)
	}
	return found, nil
}

func foldersAbove(file string) []string {
	var folders []string
	for folder := path.Dir(file); folder != "."; folder = path.Dir(folder) {
		folders = append([]string{folder}, folders...)
	}
	return folders
}

// skips reports whether an ignored folder is not looked into, as moby's archive package decides it.
func skips(matcher *patternmatcher.PatternMatcher, folder string) bool {
	for _, pattern := range matcher.Patterns() {
		if pattern.Exclusion() && strings.HasPrefix(pattern.String()+"/", folder+"/") {
			return false
		}
	}
	return true
}
