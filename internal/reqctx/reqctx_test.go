package reqctx

import (
	"context"
	"slices"
	"testing"
)

func TestNamespaceIsAWholePart(t *testing.T) {
	l := &Lease{Keys: []string{"stock:1001", "user:42"}}
	for ns, want := range map[string]bool{"stock": true, "user": true, "stock:1001": true, "stoc": false, "stock:100": false, "": false} {
		if got := l.In(ns); got != want {
			t.Errorf("In(%q) = %v, want %v", ns, got, want)
		}
	}
}

func TestLeasesInnermostFirst(t *testing.T) {
	a, b := &Lease{Fence: 1}, &Lease{Fence: 2}
	ctx := WithLease(WithLease(context.Background(), a), b)
	if got := slices.Collect(Leases(ctx)); !slices.Equal(got, []*Lease{b, a}) {
		t.Errorf("Leases = %v, want inner, outer", got)
	}
	if got := slices.Collect(Leases(WithoutLeases(ctx))); len(got) != 0 {
		t.Errorf("Leases after WithoutLeases = %v, want none", got)
	}
}

func TestOpenTransactionMarksEveryLease(t *testing.T) {
	a, b := &Lease{}, &Lease{}
	ctx := WithLease(WithLease(context.Background(), a), b)
	end := BeginTx(ctx)
	if !a.OpenTx() || !b.OpenTx() {
		t.Fatal("an open transaction is not seen on both leases")
	}
	end()
	end()
	if a.OpenTx() || b.OpenTx() {
		t.Fatal("an ended transaction is still seen")
	}
	BeginTx(ctx)
	if !a.OpenTx() {
		t.Fatal("calling end twice counted twice")
	}
}

func TestRuleAndRequest(t *testing.T) {
	ctx := context.Background()
	if _, ok := RequestOf(ctx); ok || RuleOf(ctx) != nil {
		t.Fatal("an empty context has a rule or a request")
	}
	rule := &Rule{Name: "buy"}
	ctx = WithRequest(WithRule(ctx, rule), Request{ID: "id", Attempt: 2})
	if r, ok := RequestOf(ctx); !ok || r.ID != "id" || r.Attempt != 2 || RuleOf(ctx) != rule {
		t.Fatalf("got %v, %v", r, RuleOf(ctx))
	}
}
