package telemetry_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// What a scenario shows in traces and metrics is kept in testdata/<scenario>.golden.json, so that a changed name, label,
// unit or bucket is a changed file in the review. Ids, times and hashes are normalised.

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { testserver.Main(m) }

// picture is what a scenario shows.
type picture struct {
	Spans   []*goldenSpan   `json:"spans"`
	Metrics []*goldenMetric `json:"metrics"`
}

type goldenSpan struct {
	Name       string         `json:"name"`
	Kind       string         `json:"kind"`
	Status     string         `json:"status,omitempty"` // "Error: unavailable"
	Scope      string         `json:"scope,omitempty"`
	Attributes map[string]any `json:"attributes,omitempty"`
	Events     []string       `json:"events,omitempty"`
	Links      []string       `json:"links,omitempty"` // names of the linked spans
	Children   []*goldenSpan  `json:"children,omitempty"`
}

type goldenMetric struct {
	Name   string    `json:"name"`
	Scope  string    `json:"scope"`
	Kind   string    `json:"kind"`
	Unit   string    `json:"unit"`
	Bounds []float64 `json:"bounds,omitempty"`
	Points []string  `json:"points"` // "labels: count or value"
}

// compare holds the picture of a scenario against its golden file.
func compare(t *testing.T, p picture) {
	t.Helper()
	var got bytes.Buffer
	enc := json.NewEncoder(&got)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(p); err != nil {
		t.Fatal(err)
	}
	_, name, _ := strings.Cut(t.Name(), "/")
	file := filepath.Join("testdata", name+".golden.json")
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v\nrun the test with -update and review the file", err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%s differs. If that is meant, run the test with -update and review the change.\n%s", file, firstDifference(got.String(), string(want)))
	}
}

// firstDifference shows the first lines that differ.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			from, upTo := max(0, i-3), func(n int) int { return min(n, i+6) }
			return fmt.Sprintf("line %d, got:\n%s\nwant:\n%s", i+1, strings.Join(g[min(from, len(g)):upTo(len(g))], "\n"), strings.Join(w[min(from, len(w)):upTo(len(w))], "\n"))
		}
	}
	return ""
}

// trees returns the spans as trees, in the order of their starts.
func trees(spans []sdktrace.ReadOnlySpan) []*goldenSpan {
	spans = slices.SortedStableFunc(slices.Values(spans), func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	names, byID := map[trace.SpanID]string{}, map[trace.SpanID]*goldenSpan{}
	for _, s := range spans {
		names[s.SpanContext().SpanID()] = s.Name()
	}
	var roots []*goldenSpan
	for _, s := range spans {
		g := &goldenSpan{
			Name: s.Name(), Kind: s.SpanKind().String(), Scope: scopeName(s.InstrumentationScope().Name),
			Attributes: map[string]any{}, Status: strings.TrimSuffix(s.Status().Code.String()+": "+s.Status().Description, "Unset: "),
		}
		for _, a := range s.Attributes() {
			g.Attributes[string(a.Key)] = normal(a)
		}
		for _, e := range s.Events() {
			g.Events = append(g.Events, e.Name)
		}
		for _, l := range s.Links() {
			g.Links = append(g.Links, names[l.SpanContext.SpanID()])
		}
		byID[s.SpanContext().SpanID()] = g
		if parent := byID[s.Parent().SpanID()]; parent != nil {
			parent.Children = append(parent.Children, g)
		} else {
			roots = append(roots, g)
		}
	}
	return roots
}

// normal is the value of an attribute, or what kind of value it is where it differs from run to run.
func normal(a attribute.KeyValue) any {
	key := string(a.Key)
	switch {
	case strings.HasSuffix(key, ".hash"), strings.HasSuffix(key, "message.id"):
		if a.Value.Type() == attribute.STRINGSLICE {
			return fmt.Sprintf("%d hashes", len(a.Value.AsStringSlice()))
		}
		return "hash"
	case strings.HasSuffix(key, ".fence"):
		return "fence"
	case a.Value.Type() == attribute.FLOAT64:
		return "seconds"
	case strings.HasPrefix(key, "messaging."):
		return strings.TrimPrefix(a.Value.Emit(), "golden:")
	}
	return a.Value.AsInterface()
}

func scopeName(path string) string {
	return strings.TrimPrefix(path, "github.com/holdfast-go/holdfast/")
}

// series returns the metrics with their label sets, sorted. Of a histogram only the count is the same in each run.
func series(rm metricdata.ResourceMetrics) (all []*goldenMetric) {
	for _, sm := range rm.ScopeMetrics {
		for _, m := range sm.Metrics {
			g := &goldenMetric{Name: m.Name, Unit: m.Unit, Scope: scopeName(sm.Scope.Name)}
			switch d := m.Data.(type) {
			case metricdata.Histogram[float64]:
				g.Kind = "histogram"
				for _, p := range d.DataPoints {
					g.Bounds = p.Bounds
					g.Points = append(g.Points, point(p.Attributes, fmt.Sprint("count ", p.Count)))
				}
			case metricdata.Sum[int64]:
				g.Kind = map[bool]string{true: "counter", false: "up-down counter"}[d.IsMonotonic]
				for _, p := range d.DataPoints {
					g.Points = append(g.Points, point(p.Attributes, fmt.Sprint(p.Value)))
				}
			case metricdata.Gauge[int64]:
				g.Kind = "gauge"
				for _, p := range d.DataPoints {
					g.Points = append(g.Points, point(p.Attributes, fmt.Sprint(p.Value)))
				}
			case metricdata.Gauge[float64]:
				g.Kind = "gauge"
				for _, p := range d.DataPoints {
					g.Points = append(g.Points, point(p.Attributes, "seconds"))
				}
			default:
				g.Kind = fmt.Sprintf("%T", d)
			}
			slices.Sort(g.Points)
			all = append(all, g)
		}
	}
	slices.SortFunc(all, func(a, b *goldenMetric) int { return strings.Compare(a.Scope+a.Name, b.Scope+b.Name) })
	return all
}

func point(set attribute.Set, value string) string {
	labels := map[string]string{}
	for _, a := range set.ToSlice() {
		labels[string(a.Key)] = strings.TrimPrefix(a.Value.Emit(), "golden:")
	}
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&b, "%s=%s ", k, labels[k])
	}
	return strings.TrimSpace(b.String()) + ": " + value
}
