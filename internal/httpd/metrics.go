package httpd

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Metric is a family of samples in the text format of Prometheus, version 0.0.4.
type Metric struct {
	Name, Help string
	Counter    bool // it only grows; else it is a gauge
	Samples    []Sample
}

// Sample is one value.
type Sample struct {
	Labels []Label
	Value  float64
}

// Label tells samples of a family apart.
type Label struct{ Name, Value string }

// Gauge is a Metric of one value.
func Gauge(name, help string, value float64) Metric {
	return Metric{Name: name, Help: help, Samples: []Sample{{Value: value}}}
}

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// format writes metrics as they are scraped, in an order of their own.
func format(list []Metric) []byte {
	slices.SortFunc(list, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	var b bytes.Buffer
	for _, m := range list {
		kind := "gauge"
		if m.Counter {
			kind = "counter"
		}
		b.WriteString("# HELP " + m.Name + " " + helpEscapes.Replace(m.Help) + "\n# TYPE " + m.Name + " " + kind + "\n")
		lines := make([]string, 0, len(m.Samples))
		for _, s := range m.Samples {
			lines = append(lines, m.Name+labels(s.Labels)+" "+number(s.Value)+"\n")
		}
		slices.Sort(lines)
		b.WriteString(strings.Join(lines, ""))
	}
	return b.Bytes()
}

func labels(list []Label) string {
	if len(list) == 0 {
		return ""
	}
	parts := make([]string, len(list))
	for i, l := range list {
		parts[i] = l.Name + `="` + labelEscapes.Replace(strings.ToValidUTF8(l.Value, "\uFFFD")) + `"`
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func number(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	case math.IsNaN(v):
		return "NaN"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
