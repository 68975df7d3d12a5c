// SPDX-License-Identifier: MIT
//
// render.go: renders the chart's templates with Go's template package, which Helm uses, and the few functions that the chart
// calls: a stand-in for `helm template` on machines without Helm. It is stricter: a value that does not exist is an error.
//
//	go run render.go CHART_FOLDER < CONTEXT
//
// CONTEXT is JSON with Values, Release and Chart. The documents follow on standard output. Called by check.py.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func isEmpty(value interface{}) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case bool:
		return !v
	case float64:
		return v == 0
	case []interface{}:
		return len(v) == 0
	case map[string]interface{}:
		return len(v) == 0
	}
	return false
}

// The lines of a value as a block of YAML. A scalar, and an empty list or map, is JSON, which is YAML too.
func lines(value interface{}) (all []string) {
	add := func(first, rest string, block []string) {
		for i, line := range block {
			if i == 0 {
				all = append(all, first+line)
			} else {
				all = append(all, rest+line)
			}
		}
	}
	switch v := value.(type) {
	case []interface{}:
		for _, one := range v {
			add("- ", "  ", lines(one))
		}
	case map[string]interface{}:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			if key := fmt.Sprintf("%q:", name); isEmpty(v[name]) || len(lines(v[name])) == 1 && !isBlock(v[name]) {
				add(key+" ", "", lines(v[name]))
			} else {
				add("", "", append([]string{key}, indented(lines(v[name]))...))
			}
		}
	}
	if len(all) == 0 {
		text, err := json.Marshal(value)
		fail(err)
		all = []string{string(text)}
	}
	return all
}

func isBlock(value interface{}) bool {
	switch value.(type) {
	case []interface{}, map[string]interface{}:
		return true
	}
	return false
}

func indented(block []string) []string {
	for i := range block {
		block[i] = "  " + block[i]
	}
	return block
}

// The files of the chart, as .Files has them.
type chartFiles struct{ folder string }

func (files chartFiles) Get(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(files.folder, name))
	return string(text), err
}

func main() {
	var context map[string]interface{}
	fail(json.NewDecoder(os.Stdin).Decode(&context))
	context["Files"] = chartFiles{os.Args[1]}
	chart := template.New("chart").Option("missingkey=error")
	chart.Funcs(template.FuncMap{
		"include": func(name string, data interface{}) (string, error) {
			var out bytes.Buffer
			err := chart.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"toYaml": func(value interface{}) string { return strings.Join(lines(value), "\n") },
		"nindent": func(columns int, text string) string {
			pad := strings.Repeat(" ", columns)
			return "\n" + pad + strings.ReplaceAll(text, "\n", "\n"+pad)
		},
		"replace": func(old, with, text string) string { return strings.ReplaceAll(text, old, with) },
		"quote": func(value interface{}) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"default": func(otherwise, value interface{}) interface{} {
			if isEmpty(value) {
				return otherwise
			}
			return value
		},
	})
	files, err := filepath.Glob(filepath.Join(os.Args[1], "templates", "*"))
	fail(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		fail(err)
		_, err = chart.New(filepath.Base(file)).Parse(string(text))
		fail(err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if name == "NOTES.txt" { // text for people: it must render
			fail(chart.ExecuteTemplate(&bytes.Buffer{}, name, context))
		} else if !strings.HasPrefix(name, "_") {
			fmt.Println("---")
			fail(chart.ExecuteTemplate(os.Stdout, name, context))
			fmt.Println()
		}
	}
}
