package fault

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"
)

func TestAllHoldsEveryConstantOnceAndSorted(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "fault.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []Type
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := spec.Type.(*ast.Ident); ok && id.Name == "Type" {
			lit := spec.Values[0].(*ast.BasicLit).Value
			declared = append(declared, Type(lit[1:len(lit)-1]))
		}
		return true
	})
	if got := All(); !slices.Equal(got, declared) || !slices.IsSorted(got) {
		t.Errorf("All() = %v, declared %v; want the same list, sorted", got, declared)
	}
}

func TestTypeOf(t *testing.T) {
	sentinel := New(Busy, "lock: busy")
	tests := map[string]struct {
		err  error
		want Type
	}{
		"nil":            {nil, ""},
		"sentinel":       {sentinel, Busy},
		"wrapped":        {fmt.Errorf("more: %w", sentinel), Busy},
		"joined":         {errors.Join(errors.New("plain"), sentinel), Busy},
		"without a type": {errors.New("plain"), Internal},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := TypeOf(tt.err); got != tt.want {
				t.Errorf("TypeOf(%v) = %q, want %q", tt.err, got, tt.want)
			}
		})
	}
}

func TestSentinelsOfOneTypeAreDifferentErrors(t *testing.T) {
	a, b := New(Unavailable, "lock: unavailable"), New(Unavailable, "stock: unavailable")
	if errors.Is(a, b) {
		t.Error("two sentinels of one type match each other")
	}
	if !a.Retryable() || New(Insufficient, "x").Retryable() {
		t.Error("unavailable is worth a retry, insufficient is not")
	}
}
